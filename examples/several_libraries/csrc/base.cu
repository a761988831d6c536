// SPDX-License-Identifier: Apache-2.0
#include "base.h"

#include "attempt.h"

namespace {

__global__ void scale(float *values, int count, float factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}

}  // namespace

// None of these needs a GPU.
extern "C" int sl_cudart_version(int *version) { return cudaRuntimeGetVersion(version); }

extern "C" const char *sl_error(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }

extern "C" int sl_scale(float *on_device, int count, float factor) {
    if (count > 0) scale<<<(count + 255) / 256, 256>>>(on_device, count, factor);
    return cudaGetLastError();
}
