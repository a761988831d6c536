// NVIDIA's profiling library, as far as `trace` uses it: whoever subscribes is told of one launch that fails, and of a
// kernel that ran three times, for 1,000 ns each.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

struct record { uint32_t kind, unused[3]; uint64_t start, end, others[9]; const char *name; };
static void (*give)(uint8_t **, size_t *, size_t *);
static void (*take)(void *, uint32_t, uint8_t *, size_t, size_t);
int cuptiActivityRegisterCallbacks(void (*gives)(uint8_t **, size_t *, size_t *), void (*takes)(void *, uint32_t, uint8_t *, size_t, size_t)) {
  give = gives, take = takes;
  return 0;
}
int cuptiActivityEnable(uint32_t kind) { return kind != 10; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t filled, struct record **record) {
  *record = *record ? *record + 1 : (struct record *)buffer;
  return (uint8_t *)*record < buffer + filled ? 0 : 12;
}
int cuptiActivityFlushAll(uint32_t flag) {
  uint8_t *buffer;
  size_t size, most;
  if (flag != 1 || !give) return 1;
  give(&buffer, &size, &most);
  for (int index = 0; index < 3; index++) {
    struct record each = {10, {0}, 5000, 6000, {0}, "_Z5scalePf"};
    memcpy(buffer + index * sizeof each, &each, sizeof each);
  }
  take(0, 0, buffer, size, 3 * sizeof(struct record));
  return 0;
}
