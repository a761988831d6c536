// Launches of an empty kernel, through what a traced program is given and through the driver's own function, in turns of a
// thousand: prints the nanoseconds of each, as the medians of their turns.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURNS = 200, LAUNCHES = 1000 };
static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";
typedef int launch_t(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e9 + time.tv_nsec;
}
static int order(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return puts("no driver"), 1;
  // The real dlsym, asked for by its version: nobody stands before it.
  void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  int (*init)(unsigned) = dlsym(driver, "cuInit"), (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
  int (*set)(void *) = dlsym(driver, "cuCtxSetCurrent"), (*load)(void **, const void *) = dlsym(driver, "cuModuleLoadData");
  int (*get)(void **, void *, const char *) = dlsym(driver, "cuModuleGetFunction"), (*sync)(void) = dlsym(driver, "cuCtxSynchronize");
  launch_t *launches[2] = {(launch_t *)dlsym(driver, "cuLaunchKernel"), (launch_t *)real(driver, "cuLaunchKernel")};
  void *context, *module, *function;
  if (init(0) || retain(&context, 0) || set(context) || load(&module, ptx) || get(&function, module, "nothing")) return puts("no GPU"), 1;
  static double took[2][TURNS];
  for (int turn = -10; turn < TURNS; turn++)
    for (int which = 0; which < 2; which++) {
      double start = now();
      for (int index = 0; index < LAUNCHES; index++)
        if (launches[which](function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)) return puts("launch failed"), 1;
      if (turn >= 0) took[which][turn] = (now() - start) / LAUNCHES;
      sync();
    }
  for (int which = 0; which < 2; which++) qsort(took[which], TURNS, sizeof(double), order);
  printf("%.1f %.1f %d\n", took[0][TURNS / 2], took[1][TURNS / 2], launches[0] != launches[1]);
  return 0;
}
