// The host's half: int run_<kernel>(int *out) launches it and writes the number it gave, then the
// result of each call.
#define GLUE(a, b) a##b
#define LAUNCHER(name) LAUNCHER_(GLUE(run_, name), name)
#define LAUNCHER_(run, name)                                                   \
  extern "C" int run(int *out) {                                               \
    int *device = nullptr;                                                     \
    if ((out[1] = cudaMalloc(&device, sizeof(int)))) return 1;                 \
    if ((out[2] = cudaMemset(device, 0, sizeof(int)))) return 2;               \
    name<<<1, 1>>>(device);                                                    \
    if ((out[3] = cudaGetLastError())) return 3;                               \
    if ((out[4] = cudaDeviceSynchronize())) return 4;                          \
    if ((out[5] = cudaMemcpy(out, device, 4, cudaMemcpyDeviceToHost))) return 5; \
    return 0;                                                                  \
  }
// The same for a variable: what it holds is read by its symbol. An error stays the last one until it is asked for, and
// the next launch must not be told it.
#define READER(name, variable)                                                 \
  extern "C" int GLUE_(run_, name)(int *out) {                                 \
    int *device = nullptr;                                                     \
    if ((out[1] = cudaMalloc(&device, sizeof(int)))) return 1;                 \
    out[5] = cudaMemcpyFromSymbol(out, variable, sizeof(int));                 \
    cudaGetLastError();                                                        \
    return out[5] ? 5 : 0;                                                     \
  }
#define GLUE_(a, b) GLUE(a, b)
