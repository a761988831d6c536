// Relocatable: a library of two objects that are linked for the device.
extern __device__ int step(int value);
__global__ void follow(int *at) { *at = step(*at); }

extern "C" int work(float *unused) {
  int *data = nullptr;
  cudaError_t error = cudaMalloc(&data, 4096);
  (void)unused;
  if (error) return error;
  follow<<<1, 1>>>(data);
  error = cudaGetLastError();
  return error ? error : cudaDeviceSynchronize();
}
