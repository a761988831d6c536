// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "attempt.h"

namespace {

// One thread for each number; a block adds up its own before it touches memory that all share.
__global__ void add_squares(unsigned long long count, unsigned long long *total) {
    __shared__ unsigned long long part;
    if (threadIdx.x == 0) part = 0;
    __syncthreads();
    unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i < count) atomicAdd(&part, i * i);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(total, part);
}

__global__ void tell_architecture(int *architecture) {
#ifdef __CUDA_ARCH__
    *architecture = __CUDA_ARCH__ / 10;
#endif
}

}  // namespace

extern "C" int scikit_kernel_version() { return 1; }

extern "C" const char *scikit_kernel_error(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }

extern "C" int scikit_kernel_squares(unsigned long long count, unsigned long long *total) {
    unsigned long long *on_device = nullptr;
    ATTEMPT(cudaMalloc(&on_device, sizeof *on_device));
    ATTEMPT_OR_FREE(cudaMemset(on_device, 0, sizeof *on_device), on_device);
    const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
    if (blocks) add_squares<<<blocks, 256>>>(count, on_device);
    ATTEMPT_OR_FREE(cudaGetLastError(), on_device);
    ATTEMPT_OR_FREE(cudaMemcpy(total, on_device, sizeof *total, cudaMemcpyDeviceToHost), on_device);
    return cudaFree(on_device);
}

// The architecture whose machine code this GPU took: 90 on an H100 that found its own.
extern "C" int scikit_kernel_compiled_for(int *architecture) {
    int *on_device = nullptr;
    ATTEMPT(cudaMalloc(&on_device, sizeof *on_device));
    tell_architecture<<<1, 1>>>(on_device);
    ATTEMPT_OR_FREE(cudaGetLastError(), on_device);
    ATTEMPT_OR_FREE(cudaMemcpy(architecture, on_device, sizeof *architecture, cudaMemcpyDeviceToHost), on_device);
    return cudaFree(on_device);
}
