// A library with a kernel, for programs that open it: what the functions return is the error.
__global__ void quick(float *data) { data[threadIdx.x] *= 2; }
__global__ void crooked(char *at) { *reinterpret_cast<int *>(at + 1) = 7; }

extern "C" int work(float *data) {
  cudaError_t error = data ? cudaSuccess : cudaMalloc(&data, 4096);
  if (error) return error;
  quick<<<1, 32>>>(data);
  error = cudaGetLastError();
  return error ? error : cudaDeviceSynchronize();
}

extern "C" int misaligned(void) {
  char *data = nullptr;
  cudaError_t error = cudaMalloc(&data, 4096);
  if (error) return error;
  crooked<<<1, 1>>>(data);
  return cudaDeviceSynchronize();
}
