/* As much of NVML as `cuwheel doctor` asks for: one GPU. */
#include <string.h>

#define ANSWER __declspec(dllexport) int

ANSWER nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
ANSWER nvmlInit_v2(void) { return 0; }
ANSWER nvmlShutdown(void) { return 0; }
ANSWER nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
ANSWER nvmlSystemGetDriverVersion(char *text, unsigned length) { strncpy(text, "581.80", length); return 0; }
ANSWER nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
ANSWER nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }
ANSWER nvmlDeviceGetName(void *device, char *text, unsigned length)
{
    (void)device;
    strncpy(text, "NVIDIA GeForce RTX 5060 Ti", length);
    return 0;
}
ANSWER nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 12, *minor = 0;
    return 0;
}
ANSWER nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = memory[1] = 16ULL << 30, memory[2] = 0;
    return 0;
}
