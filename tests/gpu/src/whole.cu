// One kernel that writes a number: which entry of a fat binary ran is known by it.
#include "launch.h"

extern "C" __global__ void NAME(int *out) { *out = MARK; }

LAUNCHER(NAME)
