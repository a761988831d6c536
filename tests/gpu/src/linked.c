// Linked with the driver itself: loads a cubin, and launches a kernel of it.
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuModuleLoad(void **, const char *);
int cuModuleGetFunction(void **, void *, const char *), cuCtxSynchronize(void);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

int main(int count, char **words) {
  void *context, *module, *function;
  int error = count < 3 || cuInit(0);
  if (!error) error = cuDevicePrimaryCtxRetain(&context, 0);
  if (!error) error = cuCtxSetCurrent(context);
  if (!error) error = cuModuleLoad(&module, words[1]);
  if (!error) error = cuModuleGetFunction(&function, module, words[2]);
  if (!error) error = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
  return error ? error : cuCtxSynchronize();
}
