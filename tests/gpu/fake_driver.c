// A driver that is none, to try the runner without a GPU: the first letter of an image says what becomes of it.
#define SAME(a, b) ((a) == (b) ? 0 : 1)
static const unsigned long WHERE = 0x1234567812345678;

int cuInit(unsigned flags) { return SAME(flags, 0); }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { (void)size, (void)device; name[0] = 'F'; name[1] = 0; return 0; }
int cuDeviceGetAttribute(int *value, int what, int device) { (void)device; *value = what == 75 ? 9 : 0; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorName(int code, const char **name) { (void)code; *name = "CUDA_ERROR_FAKE"; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = 0; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuModuleLoadData(void **module, const char *image) {
  (void)module;
  if (image[0] == 'C') *(volatile int *)0 = 1;
  while (image[0] == 'H') {}
  return image[0] == 'E' ? 209 : 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) { (void)function, (void)module; return SAME(name[0], 'm'); }
int cuLibraryLoadData(void **library, const char *image, void *a, void *b, unsigned n, void *c, void *d, unsigned m) {
  (void)library, (void)a, (void)b, (void)c, (void)d, (void)image;
  return SAME(n + m, 0);
}
int cuLibraryGetKernel(void **kernel, void *library, const char *name) { (void)kernel, (void)library; return SAME(name[0], 'm'); }
int cuMemAlloc_v2(unsigned long *where, unsigned long size) { *where = WHERE; return SAME(size, 4); }
int cuMemsetD32_v2(unsigned long where, unsigned value, unsigned long count) { return SAME(where, WHERE) + SAME(value, 0) + SAME(count, 1); }
int cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  (void)kernel, (void)stream, (void)extra;
  return SAME(x * y * z * bx * by * bz, 1) + SAME(shared, 0) + SAME(*(unsigned long *)arguments[0], WHERE);
}
int cuCtxSynchronize(void) { return 0; }
int cuMemcpyDtoH_v2(int *host, unsigned long where, unsigned long size) { *host = 7; return SAME(where, WHERE) + SAME(size, 4); }
