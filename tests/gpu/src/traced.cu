// A program that does what its first word says, and ends with the error that it got.
#include <cstdio>
#include <cstring>

template <typename T, int N> __global__ void scale(T *data, T by) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < N) data[index] *= by;
}
__global__ void wild(int *at) { at[threadIdx.x] = 7; }

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "run";
  float *data = nullptr;
  void *much = nullptr;
  if (!strcmp(what, "memory")) return cudaMalloc(&much, size_t(1) << 50);
  cudaError_t error = cudaMalloc(&data, 4096);
  if (error) return error;
  scale<float, 64><<<1, strcmp(what, "shape") ? 64 : 4096>>>(data, 2);
  error = cudaGetLastError();
  if (!error && !strcmp(what, "wild")) wild<<<1, 32>>>(reinterpret_cast<int *>(64));
  if (!error) error = cudaDeviceSynchronize();
  return error;
}
