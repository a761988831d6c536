// NVIDIA's profiling library, as far as `trace` uses it: whoever subscribes is told of one launch that fails.
#include <stdint.h>

struct call { int site; const char *function; const void *parameters; const int *answer; const char *kernel; };
static void (*told)(void *, int, uint32_t, const struct call *);
static int watched;

int cuptiSubscribe(void **subscriber, void (*callback)(void *, int, uint32_t, const struct call *), void *data) {
  (void)data;
  *subscriber = &told;
  told = callback;
  return 0;
}
int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t which) {
  (void)subscriber, (void)which;
  watched += enable == 1 && domain == 2;
  return 0;
}
void launch_refused(const char *kernel, int error) {
  struct call call = {0, "cudaLaunchKernel", 0, &error, kernel};
  if (!watched || !told) return;
  told(0, 2, 211, &call);
  call.site = 1;
  told(0, 2, 211, &call);
}
