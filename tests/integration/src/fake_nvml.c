// NVML that is none: all GPUs of FAKE_CUDA_GPUS, whatever is visible. FAKE_NVML_FAILS makes one call fail.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char *what) {
  const char *name = getenv("FAKE_NVML_FAILS");
  return name && !strcmp(name, what) ? 999 : 0;
}

static int all(int *major, int *minor) {
  char text[256] = "";
  int found = 0;
  if (getenv("FAKE_CUDA_GPUS")) strncpy(text, getenv("FAKE_CUDA_GPUS"), sizeof text - 1);
  for (char *word = strtok(text, ","); word && found < 16; word = strtok(0, ","))
    if (sscanf(word, "%d.%d", &major[found], &minor[found]) == 2) found++;
  return found;
}

int nvmlInit_v2(void) { return fails("init"); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  int major[16], minor[16];
  *count = all(major, minor);
  return fails("count");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return fails("handle"); }
int nvmlDeviceGetCudaComputeCapability(void *device, int *wanted_major, int *wanted_minor) {
  int major[16], minor[16];
  all(major, minor);
  *wanted_major = major[(size_t)device - 1], *wanted_minor = minor[(size_t)device - 1];
  return fails("capability");
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = getenv("FAKE_CUDA_DRIVER") ? atoi(getenv("FAKE_CUDA_DRIVER")) : 13000;
  return fails("driver");
}

// What a worker of dask-cuda asks as it starts.
int nvmlInitWithFlags(unsigned flags) { return flags ? 2 : nvmlInit_v2(); }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  unsigned index;
  return sscanf(uuid, "GPU-%u", &index) == 1 ? nvmlDeviceGetHandleByIndex_v2(index, device) : 6;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-%u", (unsigned)((size_t)device - 1));
  return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  snprintf(name, length, "GPU %u", (unsigned)((size_t)device - 1));
  return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) { *now = *later = 0; return device ? 0 : 2; }
int nvmlDeviceGetCpuAffinity(void *device, unsigned words, unsigned long *set) {
  for (unsigned each = 0; each < words; each++) set[each] = each ? 0 : 1;
  return device ? 0 : 2;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes) {
  bytes[0] = bytes[1] = 80000000000ull, bytes[2] = 0;
  return device ? 0 : 2;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *shares) { shares[0] = shares[1] = 0; return device ? 0 : 2; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *found) { *count = 0; (void)found; return device ? 0 : 2; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "580.65.06"); return 0; }
