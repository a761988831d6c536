// A driver that is none: FAKE_CUDA_GPUS="9.0,12.0" are its GPUs, FAKE_CUDA_DRIVER=13000 what it came for.
// It makes no context for anybody, and says who asked for what in FAKE_CUDA_LOG.
#define _GNU_SOURCE
#ifndef _WIN32
#include <dlfcn.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16, NO_DEVICE = 100, INVALID = 1, NO_BINARY = 209 };
static int majors[MOST], minors[MOST], count, ready;

static void note(const char *what) {
  const char *path = getenv("FAKE_CUDA_LOG");
  FILE *file = path ? fopen(path, "a") : 0;
  if (file) fprintf(file, "%s\n", what), fclose(file);
}

static int all(int *major, int *minor) {
  char text[256] = "";
  int found = 0;
  if (getenv("FAKE_CUDA_GPUS")) strncpy(text, getenv("FAKE_CUDA_GPUS"), sizeof text - 1);
  for (char *word = strtok(text, ","); word && found < MOST; word = strtok(0, ","))
    if (sscanf(word, "%d.%d", &major[found], &minor[found]) == 2) found++;
  return found;
}

int cuInit(unsigned flags) {
  int major[MOST], minor[MOST], there = all(major, minor);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  note("cuInit");
  if (getenv("FAKE_CUDA_HANGS")) for (;;) {}
  if (getenv("FAKE_CUDA_CRASHES")) *(volatile int *)0 = 1;
  count = 0;
  if (!visible) {
    memcpy(majors, major, sizeof major), memcpy(minors, minor, sizeof minor), count = there;
  } else {
    char text[256] = "";
    strncpy(text, visible, sizeof text - 1);
    for (char *word = strtok(text, ","); word; word = strtok(0, ",")) {
      int index = atoi(word);
      if (index < 0 || index >= there) break;
      majors[count] = major[index], minors[count++] = minor[index];
    }
  }
  ready = 1;
  return flags ? INVALID : count ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
  *version = getenv("FAKE_CUDA_DRIVER") ? atoi(getenv("FAKE_CUDA_DRIVER")) : 13000;
  return 0;
}
int cuDeviceGetCount(int *number) { *number = count; return ready ? 0 : 3; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < count ? 0 : 101; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Pretend GPU %d", device); return 0; }
int cuDeviceGetAttribute(int *value, int what, int device) {
  *value = what == 75 ? majors[device] : what == 76 ? minors[device] : 0;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 16000000000u; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)context, (void)flags, (void)device; note("context"); return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; note("context"); *context = 0; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuGetErrorName(int code, const char **name) { *name = code == NO_BINARY ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_FAKE"; return 0; }
// The driver's compiler, which it looks up by this name: as many milliseconds as FAKE_CUDA_COMPILES says.
int __cuda_CallJitEntryPoint(void) { return usleep(1000 * atoi(getenv("FAKE_CUDA_COMPILES"))); }
// Loads nothing that FAKE_CUDA_REFUSES names by its size in bytes, or anything at all where it says `all`.
int cuModuleLoadData(void **module, const void *image) {
  const char *refused = getenv("FAKE_CUDA_REFUSES");
  const unsigned *words = image;
  char size[32];
  *module = 0;
  snprintf(size, sizeof size, "%llu", (unsigned long long)(words[2] | (unsigned long long)words[3] << 32));
  note("cuModuleLoadData");
#ifndef _WIN32
  if (getenv("FAKE_CUDA_COMPILES")) ((int (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), "__cuda_CallJitEntryPoint"))();
#endif
  return refused && (!strcmp(refused, "all") || !strcmp(refused, size)) ? NO_BINARY : 0;
}
int cuModuleUnload(void *module) { (void)module; return 0; }
