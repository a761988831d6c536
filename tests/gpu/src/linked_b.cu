__device__ int step(int value) { return value + 1; }
