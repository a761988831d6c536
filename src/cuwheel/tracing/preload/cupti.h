/* NVIDIA's own interface for profilers, where it is asked for: it names the kernel of a launch that the CUDA runtime itself
 * refuses, which the driver is never told, and knows how long kernels ran. The driver loads us for it
 * (CUDA_INJECTION64_PATH); CUPTI's library is named by CUWHEEL_CUPTI. Everything else is seen without it. */
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

/* ---- how long kernels ran: records that CUPTI fills a buffer with, added up by the kernel's name ---- */

enum { KERNEL_RECORD = 10, BUFFER = 1 << 20, TIMED = 4096, FORCED = 1 };
struct kernel_record { /* the same in every version since CUDA 9 */
    uint32_t kind;
    uint32_t unused[3];
    uint64_t start, end;
    uint64_t others[9];
    const char *name;
};
_Static_assert(offsetof(struct kernel_record, name) == 104, "as in cupti_activity.h");

static struct timed { const char *name; uint64_t count, time; } timed[TIMED];
static pthread_mutex_t timing = PTHREAD_MUTEX_INITIALIZER;
static int (*next_record)(uint8_t *, size_t, struct kernel_record **);
static int (*flush_records)(uint32_t);

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most) {
    void *room = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *buffer = room == MAP_FAILED ? NULL : room;
    *size = room == MAP_FAILED ? 0 : BUFFER;
    *most = 0;
}

/* NULL where there are more kernels than anybody has seen. */
static struct timed *timed_of(const char *name) {
    uint64_t hash = hash_of((const unsigned char *)name, strnlen(name, NAME_ROOM));
    for (unsigned tries = 0; tries < TIMED; tries++) {
        struct timed *each = &timed[(hash + tries) % TIMED];
        if (!each->name)
            each->name = strdup(name);
        if (each->name && strcmp(each->name, name) == 0)
            return each;
    }
    return NULL;
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t filled) {
    struct kernel_record *record = NULL;
    (void)context, (void)stream;
    pthread_mutex_lock(&timing);
    while (filled && next_record(buffer, filled, &record) == OK)
        if (record->kind == KERNEL_RECORD && record->name && record->end >= record->start) {
            struct timed *kernel = timed_of(record->name);
            if (kernel)
                kernel->count++, kernel->time += record->end - record->start;
        }
    pthread_mutex_unlock(&timing);
    if (buffer)
        munmap(buffer, size);
}

static pid_t timed_process;

static void tell_times(void) {
    if (getpid() != timed_process) /* a child of fork has no records of its own */
        return;
    flush_records(FORCED);
    for (unsigned index = 0; index < TIMED; index++)
        if (timed[index].name && begin_event("time", now())) {
            add_text("name", timed[index].name, NAME_ROOM);
            add_number("launches", (int64_t)timed[index].count);
            add_number("took", (int64_t)timed[index].time);
            end_event();
        }
}

static void watch_times(void *library) {
    int (*take)(void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, uint32_t, uint8_t *, size_t, size_t)) =
        real_dlsym(library, "cuptiActivityRegisterCallbacks");
    int (*enable)(uint32_t) = real_dlsym(library, "cuptiActivityEnable");
    next_record = real_dlsym(library, "cuptiActivityGetNextRecord");
    flush_records = real_dlsym(library, "cuptiActivityFlushAll");
    if (take && enable && next_record && flush_records && take(give_buffer, take_buffer) == OK && enable(KERNEL_RECORD) == OK) {
        timed_process = getpid();
        atexit(tell_times); /* before our own end, and while CUPTI still is there */
    }
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
    watch_times(library);
    return 1;
}
