// Relocatable: what the kernels of the other objects need.
__device__ int helper() { return MARK; }
