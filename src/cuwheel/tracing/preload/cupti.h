/* NVIDIA's own interface for profilers, where it is asked for: it names the kernel of a launch that the CUDA runtime itself
 * refuses, which the driver is never told. The driver loads us for it (CUDA_INJECTION64_PATH); CUPTI's library is named
 * by CUWHEEL_CUPTI. Only the runtime's launches are watched: everything else is seen without it. */
#define CUPTI_VARIABLE "CUWHEEL_CUPTI"

struct cupti_call {
    int site; /* 1 when the call returns */
    const char *function;
    const void *parameters;
    const int *answer;
    const char *kernel; /* null with CUDA 13, where the driver is told the name */
};
typedef void cupti_callback(void *, int, uint32_t, const struct cupti_call *);

enum { RUNTIME = 2, RETURNS = 1 };
/* cudaLaunchKernel, cudaLaunchCooperativeKernel, cudaLaunchKernelExC, each also for streams of a thread */
static const uint32_t runtime_launches[] = {211, 214, 269, 270, 430, 431};

static void returned(void *nothing, int domain, uint32_t which, const struct cupti_call *call) {
    (void)nothing, (void)domain, (void)which;
    if (call->site == RETURNS && call->answer && *call->answer != OK)
        failed(call->function, *call->answer, NULL, (struct asked){.name = call->kernel});
}

/* Called by the driver when it starts. Not 1: the driver goes on without us. */
PUBLIC int InitializeInjection(void) {
    const char *path = getenv(CUPTI_VARIABLE);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library || !real_dlsym)
        return 0;
    int (*subscribe)(void **, cupti_callback *, void *) = real_dlsym(library, "cuptiSubscribe");
    int (*enable)(uint32_t, void *, int, uint32_t) = real_dlsym(library, "cuptiEnableCallback");
    void *subscriber = NULL;
    if (!subscribe || !enable || subscribe(&subscriber, returned, NULL) != 0)
        return 0;
    for (size_t index = 0; index < sizeof runtime_launches / sizeof *runtime_launches; index++)
        enable(1, subscriber, RUNTIME, runtime_launches[index]);
    return 1;
}
