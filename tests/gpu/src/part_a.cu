// Relocatable: a kernel that needs another object. The sum tells which entries of both were linked.
#include "launch.h"

extern __device__ int helper();
extern "C" __global__ void NAME(int *out) { *out = MARK + helper(); }

LAUNCHER(NAME)
