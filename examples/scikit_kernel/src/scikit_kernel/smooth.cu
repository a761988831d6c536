// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "attempt.h"

namespace {

// Each value becomes the mean of itself and its neighbours, the ends meeting: the sum of all stays as it is.
__global__ void smooth(const float *from, float *to, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) to[i] = (from[(i + count - 1) % count] + from[i] + from[(i + 1) % count]) / 3.0f;
}

}  // namespace

extern "C" int scikit_kernel_smooth(const float *from, float *to, int count) {
    if (count <= 0) return 0;
    const size_t bytes = sizeof(float) * static_cast<size_t>(count);
    float *memory = nullptr;
    ATTEMPT(cudaMalloc(&memory, 2 * bytes));
    ATTEMPT_OR_FREE(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), memory);
    smooth<<<(count + 255) / 256, 256>>>(memory, memory + count, count);
    ATTEMPT_OR_FREE(cudaGetLastError(), memory);
    ATTEMPT_OR_FREE(cudaMemcpy(to, memory + count, bytes, cudaMemcpyDeviceToHost), memory);
    return cudaFree(memory);
}
