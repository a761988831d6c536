__global__ void square(float *x) { x[threadIdx.x] *= x[threadIdx.x]; }
