// SPDX-License-Identifier: Apache-2.0
// What CUDA answers goes back to the caller as it is: Python knows how to tell it.
#pragma once

#define ATTEMPT(call)                              \
    do {                                           \
        if (int code = (call); code) return code;  \
    } while (0)

#define ATTEMPT_OR_FREE(call, memory)   \
    do {                                \
        if (int code = (call); code) {  \
            cudaFree(memory);           \
            return code;                \
        }                               \
    } while (0)
