// A driver for tests of `trace`: it takes any code but what is cut short, knows every kernel but those whose names begin
// with "absent", and answers as FAKE_SYNC says when it is waited for, or memory is given back. Kernels can have 256
// threads, 48 KiB of shared memory, and 264 blocks at once. As the real one it hands out its functions by cuGetProcAddress.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMORY = 2, NO_BINARY = 209, NOT_FOUND = 500 };
static uintptr_t next = 0x1000;
static void *made(void) { return (void *)__atomic_add_fetch(&next, 16, __ATOMIC_RELAXED); }

// Its own log, as drivers for CUDA 12.9 and later have it.
static void (*listener)(void *, int, const char *, size_t);
static void *listener_data;
int cuLogsRegisterCallback(void (*callback)(void *, int, const char *, size_t), void *data, void **handle) {
  listener = callback, listener_data = data, *handle = made();
  return 0;
}
static void tell(const char *line) { if (listener) listener(listener_data, 0, line, strlen(line)); }
static int no_code(const char *function) {
  tell("Error handling fatbinary, to get more information when using CUDA Driver APIs use the buffers");
  tell("No device code available for GPU ISA 90");
  if (function) tell(function);
  return NO_BINARY;
}
int fake_private_load(void) { return no_code(0); } // as through the tables that CUDA 11's runtime asks for

static pid_t user; // who began with it: as the real one, it works in no child of that
int cuInit(unsigned flags) { (void)flags; user = getpid(); return 0; }
int cuCtxGetCurrent(void **context) { *context = 0; return user && user != getpid() ? 3 : 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuCtxGetDevice(int *device) { tell("No CUDA context is current to the calling thread"); *device = 0; return 201; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; strncpy(name, "Pretend H200", size); return 0; }
int cuDeviceGetAttribute(int *value, int what, int device) { (void)device; *value = what == 75 ? 9 : what == 16 ? 132 : 0; return 0; }
static int limit(int *value, int what) { *value = what == 0 ? 256 : what == 4 ? 142 : what == 8 ? 48 << 10 : 0; return 0; }
int cuFuncGetAttribute(int *value, int what, void *function) { (void)function; return limit(value, what); }
int cuKernelGetAttribute(int *value, int what, void *kernel, int device) { (void)kernel, (void)device; return limit(value, what); }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *function, int threads, size_t shared) {
  (void)function, (void)threads, (void)shared;
  *count = 2;
  return 0;
}
int cuLibraryLoadData(void **library, const void *image, void *a, void **b, unsigned c, void *d, void **e, unsigned f) {
  (void)image, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  *library = made();
  tell("No device code available for GPU ISA 90"); // and yet it succeeds: what is missing is needed later, or never
  return 0;
}
int cuModuleLoadData(void **module, const void *image) {
  *module = made();
  return memcmp(image, "\177ELF\377", 5) == 0 ? 200 : 0;
}
int cuModuleLoadDataEx(void **module, const char *image, unsigned count, int *options, void **values) {
  *module = made();
  for (unsigned index = 0; index < count; index++)
    if (options[index] == 5) strcpy(values[index], "ptxas application ptx input, line 5; fatal: Unknown opcode");
  return strstr(image, "absent") ? 218 : 0;
}
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)library;
  if (strncmp(name, "absent", 6) == 0) return no_code("Returning 209 (CUDA_ERROR_NO_BINARY_FOR_GPU) from cuLibraryGetKernel");
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
  (void)f, (void)y, (void)z, (void)by, (void)bz, (void)stream, (void)a, (void)b;
  if (getenv("CUDA_LAUNCH_BLOCKING") && getenv("FAKE_SYNC")) return atoi(getenv("FAKE_SYNC"));
  return bx > 1024 || shared > 48 << 10 ? 1 : bx > 256 ? 701 : x > 100000 ? 720 : 0;
}
int cuLaunchKernel_ptsz(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **a, void **b) {
  return cuLaunchKernel(f, x, y, z, bx, by, bz, shared, stream, a, b);
}
static int waited(void) { return getenv("FAKE_SYNC") ? atoi(getenv("FAKE_SYNC")) : 0; }
int cuCtxSynchronize(void) { return waited(); }
int cuMemFree_v2(uint64_t address) { (void)address; return waited(); }
int cuMemAllocFromPoolAsync(uint64_t *address, size_t size, void *pool, void *stream) {
  (void)pool, (void)stream;
  *address = 1;
  return size > 1u << 26 ? MEMORY : 0;
}
// A graph has two nodes: the kernel that was launched last before, and a graph within that has the one before that.
static void *launched[2];
static struct { int type; } nodes[2] = {{0}, {4}};
int cuGraphGetNodes(void *graph, void **found, size_t *count) {
  *count = graph == (void *)1 ? 1 : 2;
  if (found) { found[0] = &nodes[0]; if (graph != (void *)1) found[1] = &nodes[1]; }
  return 0;
}
int cuGraphNodeGetType(int *node, int *type) { *type = *node; return 0; }
int cuGraphKernelNodeGetParams_v2(void *node, void **parameters) {
  static int turn;
  (void)node;
  parameters[turn % 2 ? 7 : 0] = launched[turn % 2];
  turn++;
  return 0;
}
// Asked of a handle that was never launched.
int cuFuncGetName(const char **name, void *function) { (void)function; tell("asked"); *name = "_Z5chasePPi"; return 0; }
int cuGraphChildGraphNodeGetGraph(void *node, void **graph) { (void)node; *graph = (void *)1; return 0; }
int cuGraphInstantiateWithFlags(void **ready, void *graph, uint64_t flags) { (void)graph, (void)flags; *ready = made(); return 0; }
int cuGraphLaunch(void *ready, void *stream) { (void)ready, (void)stream; return 0; }
void fake_graph_of(void *first, void *second) { launched[0] = first, launched[1] = second; }
int cuMemAlloc_v2(uint64_t *address, size_t size) { *address = 1; return size > 1u << 30 ? MEMORY : 0; }

// Plain names stand for newer functions, as with the real one.
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, void *status) {
  (void)version, (void)status;
  const char *name = symbol;
  if (strcmp(symbol, "cuMemAlloc") == 0) name = "cuMemAlloc_v2";
  if (strcmp(symbol, "cuMemFree") == 0) name = "cuMemFree_v2";
  if (strcmp(symbol, "cuLaunchKernel") == 0 && flags == 2) name = "cuLaunchKernel_ptsz";
  if (strcmp(symbol, "cuGetProcAddress") == 0) name = "cuGetProcAddress_v2";
#define GIVE(known) if (strcmp(name, #known) == 0) *function = (void *)known;
  *function = NULL;
  GIVE(cuMemAlloc_v2) GIVE(cuMemFree_v2) GIVE(cuMemAllocFromPoolAsync) GIVE(cuLaunchKernel_ptsz) GIVE(cuLaunchKernel)
  GIVE(cuLibraryLoadData) GIVE(cuLibraryGetKernel) GIVE(cuCtxSynchronize) GIVE(cuGetProcAddress_v2)
  GIVE(cuInit) GIVE(cuCtxGetCurrent) GIVE(cuGraphInstantiateWithFlags) GIVE(cuGraphLaunch) GIVE(cuModuleLoadData) GIVE(cuModuleLoadDataEx)
  return *function ? 0 : NOT_FOUND;
}
