// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

namespace {

__global__ void add_cubes(unsigned count, unsigned long long *total) {
    const unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i < count) atomicAdd(total, i * i * i);
}

}  // namespace

extern "C" int launch_cubes(unsigned count, unsigned long long *total) {
    unsigned long long *memory = nullptr;
    int code = cudaMalloc(&memory, sizeof *memory);
    if (code) return code;
    code = cudaMemset(memory, 0, sizeof *memory);
    if (!code && count) {
        add_cubes<<<(count + 255) / 256, 256>>>(count, memory);
        code = cudaGetLastError();
    }
    if (!code) code = cudaMemcpy(total, memory, sizeof *total, cudaMemcpyDeviceToHost);
    cudaFree(memory);
    return code;
}

extern "C" const char *name_of_error(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }
