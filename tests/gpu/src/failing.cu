// Programs that fail as users' programs do: the first word says how, and the status is the error.
#include <cstdio>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

__global__ void meet(int *at) { at[0] = 1; }
__global__ void wide(float *data) {
  extern __shared__ float room[];
  room[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = room[(threadIdx.x + 1) % blockDim.x];
}
// So many values at once that a block of 1,024 threads has too few registers.
__global__ void heavy(const volatile float *from, float *to) {
  float value[128];
#pragma unroll
  for (int index = 0; index < 128; index++) value[index] = from[index * 32 + threadIdx.x % 32];
#pragma unroll
  for (int index = 0; index < 128; index++) value[index] = value[index] * value[(index * 37 + 11) % 128] + 1;
#pragma unroll
  for (int index = 0; index < 128; index++) to[index * 32 + threadIdx.x % 32] = value[index];
}
__global__ void chase(int **where) { **where = 7; }
__global__ void fill(int *at) { *at = 1; }
__global__ void late(int *at) { at[threadIdx.x] = 7; }
int not_a_kernel(int value) { return value + 1; }

static int end(cudaError_t error) {
  if (!error) error = cudaGetLastError();
  return error ? error : cudaDeviceSynchronize();
}

// Replayed well, and again after what it reads has changed: told when the stream is waited for.
static int replay(int *target) {
  int **where, *nowhere = reinterpret_cast<int *>(64);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaMalloc(&where, sizeof *where);
  cudaMemcpy(where, &target, sizeof target, cudaMemcpyHostToDevice);
  cudaStreamCreate(&stream);
  fill<<<1, 1, 0, stream>>>(target);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  chase<<<1, 1, 0, stream>>>(where);
  cudaStreamEndCapture(stream, &graph);
  cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
  if (!error) error = cudaGraphLaunch(ready, stream);
  if (!error) error = cudaStreamSynchronize(stream);
  for (int count = 0; count < 300 && !error; count++) {
    fill<<<1, 1, 0, stream>>>(target);
    error = cudaGetLastError();
  }
  if (!error) error = cudaMemcpy(where, &nowhere, sizeof nowhere, cudaMemcpyHostToDevice);
  if (!error) error = cudaGraphLaunch(ready, stream);
  return error ? error : cudaStreamSynchronize(stream);
}

static int capture() {
  cudaStream_t stream;
  void *more;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  return cudaMalloc(&more, 4096);
}

static int pool() {
  cudaMemPoolProps wanted = {};
  cudaMemPool_t made;
  void *much;
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.maxSize = size_t(64) << 20;
  cudaError_t error = cudaMemPoolCreate(&made, &wanted);
  return error ? error : cudaMallocFromPoolAsync(&much, size_t(256) << 20, made, 0);
}

static int child() {
  void *more;
  pid_t made = fork();
  if (made == 0) _exit(cudaMalloc(&more, 4096));
  int status = 0;
  waitpid(made, &status, 0);
  return WEXITSTATUS(status);
}

int main(int count, char **words) {
  const char *how = count > 1 ? words[1] : "";
  int *data = nullptr;
  cudaError_t error = cudaMalloc(&data, 1 << 20);
  if (error) return error;
  float *floats = reinterpret_cast<float *>(data);
  void *arguments[] = {&data};
  if (!strcmp(how, "cooperative")) return cudaLaunchCooperativeKernel((const void *)meet, 1 << 20, 1024, arguments, 0, 0);
  if (!strcmp(how, "shared")) wide<<<1, 32, 200 << 10>>>(floats);
  if (!strcmp(how, "attribute")) return cudaFuncSetAttribute(wide, cudaFuncAttributeMaxDynamicSharedMemorySize, 400 << 10);
  if (!strcmp(how, "registers")) heavy<<<1, 1024>>>(floats, floats);
  if (!strcmp(how, "pool")) return pool();
  if (!strcmp(how, "graph")) return replay(data);
  if (!strcmp(how, "capture")) return capture();
  if (!strcmp(how, "fork")) return child();
  if (!strcmp(how, "unregistered")) return cudaLaunchKernel((const void *)not_a_kernel, 1, 1, arguments, 0, 0);
  if (!strcmp(how, "blocking")) {
    fill<<<1, 1>>>(data);
    late<<<1, 32>>>(reinterpret_cast<int *>(64));
    error = cudaGetLastError();
    if (error) return error;
  }
  if (!strcmp(how, "free")) { // told when memory is given back
    late<<<1, 32>>>(reinterpret_cast<int *>(64));
    return cudaFree(data);
  }
  return end(cudaSuccess);
}
