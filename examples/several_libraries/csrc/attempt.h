// SPDX-License-Identifier: Apache-2.0
// What CUDA answers goes back to the caller as it is; what its libraries answer, a thousand times more than that.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

constexpr int kOfLibrary = 1000;

#define ATTEMPT(call)                                                \
    do {                                                             \
        if (int code = static_cast<int>(call); code) return code;    \
    } while (0)

#define ATTEMPT_LIBRARY(call)                                                  \
    do {                                                                       \
        if (int code = static_cast<int>(call); code) return kOfLibrary * code; \
    } while (0)

// Memory of the device that is given back whatever happens.
template <typename T>
struct OnDevice {
    T *data = nullptr;
    int code = 0;

    explicit OnDevice(std::size_t count) { code = cudaMalloc(&data, (count ? count : 1) * sizeof(T)); }
    OnDevice(const T *from, std::size_t count) : OnDevice(count) {
        if (!code) code = cudaMemcpy(data, from, count * sizeof(T), cudaMemcpyHostToDevice);
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    ~OnDevice() { cudaFree(data); }

    int to(T *host, std::size_t count) const {
        return cudaMemcpy(host, data, count * sizeof(T), cudaMemcpyDeviceToHost);
    }
};
