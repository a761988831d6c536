// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

namespace {

__global__ void add_squares(const float *values, long count, float *total) {
    const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(total, values[i] * values[i]);
}

}  // namespace

// Nothing of torch in here: compiled in seconds, and the same against a torch with CUDA and one without.
int squares(const float *values, long count, bool on_device, float *total) {
    const size_t bytes = on_device ? 0 : sizeof(float) * static_cast<size_t>(count);
    float *memory = nullptr;
    int code = cudaMalloc(&memory, sizeof(float) + bytes);
    if (code) return code;
    code = cudaMemset(memory, 0, sizeof(float));
    if (!code && bytes) code = cudaMemcpy(memory + 1, values, bytes, cudaMemcpyHostToDevice);
    if (!code && count) {
        const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
        add_squares<<<blocks, 256>>>(on_device ? values : memory + 1, count, memory);
        code = cudaGetLastError();
    }
    if (!code) code = cudaMemcpy(total, memory, sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(memory);
    return code;
}

const char *error_name(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
