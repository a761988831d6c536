// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

namespace {

__global__ void multiply_and_add(const float *a, const float *b, int count, float *total) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) atomicAdd(total, a[i] * b[i]);
}

}  // namespace

// The dot product of `count` pairs in `total`; CUDA's error code, 0 for none.
int dot(const float *a, const float *b, int count, float *total) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(count);
    float *memory = nullptr;
    int code = cudaMalloc(&memory, 2 * bytes + sizeof(float));
    if (code) return code;
    code = cudaMemcpy(memory, a, bytes, cudaMemcpyHostToDevice);
    if (!code) code = cudaMemcpy(memory + count, b, bytes, cudaMemcpyHostToDevice);
    if (!code) code = cudaMemset(memory + 2 * count, 0, sizeof(float));
    if (!code && count) {
        multiply_and_add<<<(count + 255) / 256, 256>>>(memory, memory + count, count, memory + 2 * count);
        code = cudaGetLastError();
    }
    if (!code) code = cudaMemcpy(total, memory + 2 * count, sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(memory);
    return code;
}

const char *error_name(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
