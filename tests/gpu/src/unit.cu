// One translation unit of a mixture. KIND says what the host can ask of it; run_<name> asks, and gives MARK.
#include "launch.h"

#define PASTE(a, b) GLUE(a, b)
#define KERNEL 1
#define STATIC_KERNEL 2
#define WEAK_KERNEL 3
#define VARIABLE 4
#define STATIC_VARIABLE 5
#define CONSTANT 6
#define MANAGED 7
#define TEXTURE 8
#define BOTH 9
#define CALLS 10
#define CALLED 11
#define USES 12
#define USED 13
#define NEWER_ONLY 14
#define LAUNCHES 15
#define NEWER_VARIABLE 16

#if KIND == KERNEL
extern "C" __global__ void NAME(int *out) { *out = MARK; }
LAUNCHER(NAME)
#elif KIND == STATIC_KERNEL
static __global__ void NAME(int *out) { *out = MARK; }
LAUNCHER(NAME)
#elif KIND == WEAK_KERNEL
template <int mark> __global__ void PASTE(NAME, _of)(int *out) { *out = mark; }
LAUNCHER_(PASTE(run_, NAME), PASTE(NAME, _of)<MARK>)
#elif KIND == VARIABLE
__device__ int PASTE(NAME, _is) = MARK;
READER(NAME, PASTE(NAME, _is))
#elif KIND == STATIC_VARIABLE
static __device__ int PASTE(NAME, _is) = MARK;
READER(NAME, PASTE(NAME, _is))
#elif KIND == CONSTANT
__constant__ int PASTE(NAME, _is) = MARK;
READER(NAME, PASTE(NAME, _is))
#elif KIND == MANAGED
__managed__ int PASTE(NAME, _is) = MARK;
READER(NAME, PASTE(NAME, _is))
#elif KIND == TEXTURE
__global__ void PASTE(NAME, _reads)(int *out, cudaTextureObject_t from) { *out = tex1Dfetch<int>(from, 0) + MARK; }
extern "C" int PASTE(run_, NAME)(int *out) {
  int *device = nullptr;
  if ((out[1] = cudaMalloc(&device, 512))) return 1;
  if ((out[2] = cudaMemset(device, 0, 512))) return 2;
  cudaResourceDesc from = {};
  from.resType = cudaResourceTypeLinear;
  from.res.linear.devPtr = device;
  from.res.linear.desc = cudaCreateChannelDesc<int>();
  from.res.linear.sizeInBytes = 256;
  cudaTextureDesc how = {};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  if ((out[3] = cudaCreateTextureObject(&texture, &from, &how, nullptr))) return 3;
  PASTE(NAME, _reads)<<<1, 1>>>(device + 64, texture);
  if ((out[3] = cudaGetLastError())) return 3;
  if ((out[4] = cudaDeviceSynchronize())) return 4;
  if ((out[5] = cudaMemcpy(out, device + 64, 4, cudaMemcpyDeviceToHost))) return 5;
  return 0;
}
#elif KIND == BOTH // the host fills a variable that the kernel reads
__device__ int PASTE(NAME, _is);
__global__ void PASTE(NAME, _reads)(int *out) { *out = PASTE(NAME, _is); }
static int fill(int *out) {
  int mark = MARK;
  out[2] = cudaMemcpyToSymbol(PASTE(NAME, _is), &mark, sizeof mark);
  cudaGetLastError();
  return out[2] ? 2 : 0;
}
LAUNCHER_(PASTE(launch_, NAME), PASTE(NAME, _reads))
extern "C" int PASTE(run_, NAME)(int *out) {
  int failed = fill(out);
  return failed ? failed : PASTE(launch_, NAME)(out);
}
#elif KIND == CALLS // relocatable: the function is another unit's
extern __device__ int called();
extern "C" __global__ void NAME(int *out) { *out = MARK + called(); }
LAUNCHER(NAME)
#elif KIND == CALLED
__device__ int called() { return 0; }
#elif KIND == USES // relocatable: the variable is another unit's
extern __device__ int used;
extern "C" __global__ void NAME(int *out) { *out = MARK + used; }
LAUNCHER(NAME)
#elif KIND == USED
__device__ int used;
READER(NAME, used)
#elif KIND == NEWER_ONLY // the host registers it whatever the device's half holds
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= OLDEST
extern "C" __global__ void NAME(int *out) { *out = MARK; }
#endif
extern "C" __global__ void PASTE(NAME, _beside)(int *out) { *out = MARK; }
#ifndef __CUDA_ARCH__
LAUNCHER(NAME)
LAUNCHER(PASTE(NAME, _beside))
#endif
#elif KIND == NEWER_VARIABLE
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= OLDEST
__device__ int PASTE(NAME, _is) = MARK;
#endif
extern "C" __global__ void PASTE(NAME, _beside)(int *out) { *out = MARK; }
#ifndef __CUDA_ARCH__
READER(NAME, PASTE(NAME, _is))
LAUNCHER(PASTE(NAME, _beside))
#endif
#elif KIND == LAUNCHES // a kernel that starts another: libcudadevrt's own code is linked in
__global__ void PASTE(NAME, _child)(int *out) { *out = MARK; }
extern "C" __global__ void NAME(int *out) { PASTE(NAME, _child)<<<1, 1>>>(out); }
LAUNCHER(NAME)
#endif
