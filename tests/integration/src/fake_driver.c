// A driver for tests of `trace`: it takes any code, knows every kernel but those whose names begin with "absent", and
// answers as FAKE_SYNC says when it is waited for. As the real one it hands out its functions by cuGetProcAddress.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 2, NO_BINARY = 209, NOT_FOUND = 500 };
static uintptr_t next = 0x1000;
static void *made(void) { return (void *)__atomic_add_fetch(&next, 16, __ATOMIC_RELAXED); }

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; strncpy(name, "Pretend H200", size); return 0; }
int cuDeviceGetAttribute(int *value, int what, int device) { (void)device; *value = what == 75 ? 9 : 0; return 0; }
int cuLibraryLoadData(void **library, const void *image, void *a, void **b, unsigned c, void *d, void **e, unsigned f) {
  (void)image, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  *library = made();
  return 0;
}
int cuModuleLoadData(void **module, const void *image) { (void)image; *module = made(); return 0; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)library;
  if (strncmp(name, "absent", 6) == 0) return NO_BINARY;
  *kernel = made();
  return 0;
}
int cuLibraryGetModule(void **module, void *library) { (void)library; *module = made(); return 0; }
int cuKernelGetFunction(void **function, void *kernel) { (void)kernel; *function = made(); return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  if (strncmp(name, "absent", 6) == 0) return NOT_FOUND;
  *function = made();
  return 0;
}
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **a, void **b) {
  (void)f, (void)x, (void)y, (void)z, (void)by, (void)bz, (void)shared, (void)stream, (void)a, (void)b;
  return bx > 1024 ? 1 : 0;
}
int cuLaunchKernel_ptsz(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **a, void **b) {
  return cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, a, b);
}
int cuCtxSynchronize(void) { return getenv("FAKE_SYNC") ? atoi(getenv("FAKE_SYNC")) : 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) { *address = 1; return size > 1u << 30 ? MEMORY : 0; }

// Plain names stand for newer functions, as with the real one.
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, void *status) {
  (void)version, (void)status;
  const char *name = symbol;
  if (strcmp(symbol, "cuMemAlloc") == 0) name = "cuMemAlloc_v2";
  if (strcmp(symbol, "cuLaunchKernel") == 0 && flags == 2) name = "cuLaunchKernel_ptsz";
  if (strcmp(symbol, "cuGetProcAddress") == 0) name = "cuGetProcAddress_v2";
  *function = NULL;
  if (strcmp(name, "cuMemAlloc_v2") == 0) *function = (void *)cuMemAlloc_v2;
  else if (strcmp(name, "cuLaunchKernel_ptsz") == 0) *function = (void *)cuLaunchKernel_ptsz;
  else if (strcmp(name, "cuLaunchKernel") == 0) *function = (void *)cuLaunchKernel;
  else if (strcmp(name, "cuLibraryLoadData") == 0) *function = (void *)cuLibraryLoadData;
  else if (strcmp(name, "cuLibraryGetKernel") == 0) *function = (void *)cuLibraryGetKernel;
  else if (strcmp(name, "cuCtxSynchronize") == 0) *function = (void *)cuCtxSynchronize;
  else if (strcmp(name, "cuGetProcAddress_v2") == 0) *function = (void *)cuGetProcAddress_v2;
  return *function ? 0 : NOT_FOUND;
}
