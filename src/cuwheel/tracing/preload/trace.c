/* Loaded into every program of a traced command: sees which device code it hands to the driver, which kernels it looks
 * up and launches, and which of those calls fail.
 *
 * Programs reach the driver in three ways. They link it: then our functions of the same names are found first. They
 * ask `dlsym` for its functions, or for `cuGetProcAddress` and that for the others, as the CUDA runtime does: then what
 * they are given is ours. No header of CUDA is needed, and nothing is changed that the driver sees: its private tables
 * are left alone, because it checks them. */
#define _GNU_SOURCE
#include "output.h"

#include "forks.h"
#include "image.h"
#include "kernels.h"
#include "python.h"
#include <stddef.h>
#include <stdlib.h>

#define PUBLIC __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

enum { OK = 0, STUB_LIBRARY = 34, NOT_READY = 600, DEINITIALIZED = 4 };
typedef int result;
typedef void *handle;

static void *(*real_dlsym)(void *, const char *);
static __thread uint64_t jit_time __attribute__((tls_model("initial-exec")));
static __thread unsigned jit_calls __attribute__((tls_model("initial-exec")));

#if defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif

static void find_dlsym(void) {
    if (!real_dlsym)
        real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
    if (!real_dlsym)
        real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
}

static void *real_symbol(const char *name) {
    find_dlsym();
    enter_loader();
    void *found = real_dlsym ? real_dlsym(RTLD_DEFAULT, name) : NULL;
    leave_loader();
    return found;
}

/* ---- what is wrapped ---- */

struct function {
    const char *name;
    void *ours;
    void **real;
};
static const struct function *function_named(const char *name);

static bool of_driver(void *address) {
    Dl_info found;
    if (!address || !dladdr(address, &found) || !found.dli_fname)
        return false;
    const char *name = strrchr(found.dli_fname, '/');
    return strncmp(name ? name + 1 : found.dli_fname, "libcuda.so", 10) == 0;
}

/* The driver's own, for a program that linked it: then nobody has asked us for it before. */
static void *driver_symbol(const char *name) {
    find_dlsym();
    enter_loader();
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = driver && real_dlsym ? real_dlsym(driver, name) : NULL;
    if (driver)
        dlclose(driver);
    leave_loader();
    return found;
}

static bool found_real(const char *name, void **real) {
    if (!*real)
        *real = driver_symbol(name);
    return *real != NULL;
}

#include "driver_log.h"

/* ---- events ---- */

static void describe_process(void) {
    static char path[PATH_MAX], words[4096];
    ssize_t count = readlink("/proc/self/exe", path, sizeof path - 1);
    path[count < 0 ? 0 : count] = 0;
    add_beginning("process", now());
    add_number("pid", getpid());
    add_number("parent", getppid());
    add_text("program", path, sizeof path);
    /* Of the words only a script's or module's name: the others may be secrets. */
    int command = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    count = command < 0 ? 0 : read(command, words, sizeof words - 2);
    if (command >= 0)
        close(command);
    words[count < 0 ? 0 : count] = words[(count < 0 ? 0 : count) + 1] = 0;
    const char *second = words + strlen(words) + 1;
    if (count > 0 && second < words + count) {
        const char *third = second + strlen(second) + 1;
        if (strcmp(second, "-m") == 0 && third < words + count)
            add_text("module", third, 256);
        else if (second[0] != '-' && access(second, R_OK) == 0)
            add_text("script", second, PATH_MAX);
    }
    add_text("visible", getenv("CUDA_VISIBLE_DEVICES"), 1024);
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (blocking && strcmp(blocking, "1") == 0)
        add_number("blocking", 1);
    if (forked)
        add_number("forked", 1);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    add_number("at", (int64_t)time.tv_sec * 1000000000 + time.tv_nsec);
    write_line();
}

static void add_caller(void *address) {
    static struct place place;
    if (address && find_place(address, &place))
        add_text("caller", place.path, sizeof place.path);
}

static void add_device(int device) {
    result (*attribute)(int *, int, int) = driver_symbol("cuDeviceGetAttribute");
    result (*device_name)(char *, int, int) = driver_symbol("cuDeviceGetName");
    result (*version)(int *) = driver_symbol("cuDriverGetVersion");
    int major = 0, minor = 0, driver = 0;
    char name[128] = "";
    if (!attribute || attribute(&major, 75, device) || attribute(&minor, 76, device))
        return;
    if (version)
        version(&driver);
    if (device_name)
        device_name(name, sizeof name - 1, device);
    if (begin_event("device", now())) {
        add_number("device", device);
        add_number("major", major);
        add_number("minor", minor);
        add_number("driver_cuda", driver);
        add_text("name", name, sizeof name);
        end_event();
    }
}

/* The device of this thread's context, told once. Code is loaded for whichever is used first: without a context yet
 * that is the first one. */
static atomic_uint seen;

static int see_device(void) {
    static result (*current)(int *);
    int device = 0;
    if (!current)
        current = driver_symbol("cuCtxGetDevice");
    busy++;
    if (!current || current(&device) != OK || device < 0 || device > 31)
        device = 0;
    if (!(atomic_fetch_or(&seen, 1u << device) & 1u << device))
        add_device(device);
    busy--;
    return device;
}

struct call {
    uint64_t began;
    uint64_t jit;
    unsigned compiled;
};

static struct call begin_call(void) { return (struct call){now(), jit_time, jit_calls}; }

static void add_names(const char *names) {
    add("[");
    for (const char *each = names; *each == GRAPH_MARK; each += 1 + strcspn(each + 1, "\n")) {
        add(each == names ? "" : ",");
        add_string(each + 1, strcspn(each + 1, "\n"));
    }
    add("]");
}

static void add_last(void) {
    unsigned long total = atomic_load(&launches);
    add(",\"last\":[");
    for (unsigned long count = 0; count < LAST && count < total; count++) {
        struct kernel *each = last[(total - 1 - count) % LAST];
        const char *name = each ? atomic_load(&each->name) : NULL;
        if (!name)
            break;
        add(count ? "," : "");
        if (atomic_load(&each->kind) == GRAPH)
            add_names(name);
        else
            add_string(name, 2048);
    }
    add("]");
}

struct asked { /* what a call wanted, as far as it is known; zero where it does not apply */
    handle kernel, library;
    const char *name;
    const void *image;
    const char *path;
    unsigned size[7]; /* grid, block, shared memory */
    uint64_t bytes;
    const char *log; /* of the compiler, where the program wants to have it */
    size_t log_size;
};

/* What the kernel of a launch can be given, so that the report can say what was too much. */
static void add_limits(const int *limits, size_t count) {
    static const char *const names[] = {"max_threads", "static_shared", "registers", "max_shared", "resident"};
    for (size_t index = 0; index < count; index++)
        if (limits[index] >= 0)
            add_number(names[index], limits[index]);
}

enum { LIMITS = 5, MULTIPROCESSORS = 16 };
static void find_limits(handle kernel, const unsigned *size, int device, int *limits) {
    static const int attributes[] = {0, 1, 4, 8}; /* CU_FUNC_ATTRIBUTE_… in the order of the names */
    unsigned kind = atomic_load(&slot_of(kernel)->kind);
    result (*of_function)(int *, int, handle) = driver_symbol("cuFuncGetAttribute");
    result (*of_kernel)(int *, int, handle, int) = driver_symbol("cuKernelGetAttribute");
    result (*resident)(int *, handle, int, size_t) = driver_symbol("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    result (*of_device)(int *, int, int) = driver_symbol("cuDeviceGetAttribute");
    int blocks = 0, processors = 0;
    for (unsigned index = 0; index < LIMITS; index++)
        limits[index] = -1;
    for (unsigned index = 0; index < 4; index++)
        if (kind == FUNCTION_OF_MODULE ? !of_function || of_function(&limits[index], attributes[index], kernel)
                                       : !of_kernel || of_kernel(&limits[index], attributes[index], kernel, device))
            limits[index] = -1;
    if (resident && of_device && of_device(&processors, MULTIPROCESSORS, device) == OK &&
        resident(&blocks, kernel, (int)(size[3] * size[4] * size[5]), size[6]) == OK)
        limits[4] = blocks * processors;
}

/* Errors of a launch's shape: only then does the driver still answer, and the answer matter. */
static bool of_shape(result status) { return status == 1 || status == 9 || status == 701 || status == 720; }

/* The same failure again and again, as of a library that tries: told a few times, then only counted. */
static struct { const char *api; result status; const void *what; unsigned count; } known[256];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static bool told_enough(const char *api, result status, const struct asked *asked) {
    const void *what = asked->kernel ? asked->kernel : asked->library ? asked->library : asked->image;
    bool enough = true;
    if (pthread_mutex_trylock(&counting))
        return false;
    for (unsigned index = 0; index < 256; index++) {
        if (known[index].api == api && known[index].status == status && known[index].what == what) {
            enough = ++known[index].count > 4;
            break;
        }
        if (!known[index].api) {
            known[index].api = api, known[index].status = status, known[index].what = what, known[index].count = 1;
            enough = false;
            break;
        }
    }
    pthread_mutex_unlock(&counting);
    return enough;
}

static atomic_ulong untold;

static void failed(const char *api, result status, void *caller, struct asked asked) {
    static __thread char *stack __attribute__((tls_model("initial-exec")));
    if (status == NOT_READY || status == DEINITIALIZED)
        return;
    if (told_enough(api, status, &asked)) {
        atomic_fetch_add(&untold, 1);
        return;
    }
    int device = see_device(), limits[LIMITS];
    bool limited = asked.size[0] && of_shape(status) && atomic_load(&slot_of(asked.kernel)->kind);
    if (limited) {
        busy++;
        find_limits(asked.kernel, asked.size, device, limits);
        busy--;
    }
    if (!stack) {
        void *room = mmap(NULL, STACK_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack = room == MAP_FAILED ? NULL : room;
    }
    bool python = stack && python_stack(stack);
    if (!begin_event("failure", now()))
        return;
    add_text("api", api, 128);
    add_number("error", status);
    add_number("device", device);
    if (asked.kernel)
        add_handle("kernel", asked.kernel);
    if (asked.library)
        add_handle("library", asked.library);
    add_text("name", asked.name ? asked.name : asked.kernel ? name_of(asked.kernel) : NULL, NAME_ROOM);
    if (asked.path)
        add_text("path", asked.path, PATH_MAX);
    else if (asked.image)
        add_image(asked.image);
    if (asked.size[0]) {
        char text[128];
        const unsigned *size = asked.size;
        snprintf(text, sizeof text, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared\":%u", size[0], size[1], size[2],
                 size[3], size[4], size[5], size[6]);
        add(text);
    }
    if (limited)
        add_limits(limits, LIMITS);
    if (asked.bytes)
        add_number("bytes", (int64_t)asked.bytes);
    if (asked.log)
        add_text("log", asked.log, asked.log_size < 2048 ? asked.log_size : 2048);
    add_caller(caller);
    add_last();
    if (python)
        add_text("python", stack, STACK_ROOM);
    end_event();
}

/* Options of the compiler: the buffer for its errors, and how large that is. */
enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 };
static struct asked of_image(const void *image, const char *path, unsigned count, const int *options, void *const *values) {
    struct asked asked = {.image = image, .path = path};
    for (unsigned index = 0; options && values && index < count; index++) {
        if (options[index] == ERROR_LOG)
            asked.log = values[index];
        if (options[index] == ERROR_LOG_SIZE)
            asked.log_size = (size_t)(uintptr_t)values[index];
    }
    return asked;
}

static void loaded(const char *api, result status, struct call call, handle got, struct asked asked, void *caller) {
    uint64_t ended = now();
    int device = see_device();
    if (begin_event("load", call.began)) {
        add_text("api", api, 64);
        add_number("took", (int64_t)(ended - call.began));
        add_number("error", status);
        add_number("device", device);
        if (status == OK)
            add_handle("handle", got);
        if (jit_calls != call.compiled) {
            add_number("jit", (int64_t)(jit_time - call.jit));
            add_number("compilations", jit_calls - call.compiled);
        }
        if (asked.path)
            add_text("path", asked.path, PATH_MAX);
        else
            add_image(asked.image);
        add_caller(caller);
        end_event();
    }
    if (status != OK)
        failed(api, status, caller, asked);
}

/* A handle for something of another handle: a kernel of a library, a module of a library, a function of a kernel. */
static void got(const char *api, result status, struct call call, handle made, handle of, const char *name, void *caller) {
    if (status != OK) {
        bool from_kernel = strcmp(api, "cuKernelGetFunction") == 0;
        failed(api, status, caller,
               from_kernel ? (struct asked){.kernel = of} : (struct asked){.library = of, .name = name});
        return;
    }
    if (!begin_event("handle", call.began))
        return;
    add_text("api", api, 64);
    add_handle("handle", made);
    add_handle("of", of);
    if (jit_calls != call.compiled)
        add_number("jit", (int64_t)(jit_time - call.jit));
    if (name)
        add_text("name", name, NAME_ROOM);
    bool from_kernel = strcmp(api, "cuKernelGetFunction") == 0;
    struct kernel *slot = from_kernel ? enter(made, name_of(of)) : name ? enter(made, name) : NULL;
    if (slot)
        atomic_store(&slot->kind, strcmp(api, "cuLibraryGetKernel") == 0 ? KERNEL_OF_LIBRARY : FUNCTION_OF_MODULE);
    end_event();
}

static void first_launch(handle kernel) {
    struct kernel *slot = NULL;
    if (!begin_event("launch", now()))
        return;
    slot = enter(kernel, NULL);
    if (slot && !atomic_load(&slot->name)) { /* of a runtime that loads in private */
        result (*get_name)(const char **, handle) = driver_symbol("cuFuncGetName");
        const char *name = NULL;
        if (get_name && get_name(&name, kernel) == OK && name)
            atomic_store(&slot->name, kept(name));
    }
    if (slot)
        atomic_store(&slot->launched, 1);
    add_handle("kernel", kernel);
    add_text("name", slot ? atomic_load(&slot->name) : NULL, NAME_ROOM);
    end_event();
}

static inline void remember(struct kernel *slot) {
    unsigned long count = atomic_load_explicit(&launches, memory_order_relaxed);
    last[count % LAST] = slot;
    atomic_store_explicit(&launches, count + 1, memory_order_relaxed); /* threads may lose one: it is for people */
    atomic_store_explicit(&slot->count, atomic_load_explicit(&slot->count, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void launched(const char *api, result status, handle kernel, void *caller, const unsigned *size) {
    struct kernel *slot = slot_of(kernel);
    if (__builtin_expect(status != OK, 0)) {
        struct asked asked = {.kernel = kernel};
        if (size)
            memcpy(asked.size, size, sizeof asked.size);
        failed(api, status, caller, asked);
        return;
    }
    remember(slot);
    if (__builtin_expect(!atomic_load_explicit(&slot->launched, memory_order_relaxed), 0))
        first_launch(kernel);
}

/* ---- the functions ---- */

#define FUNCTION(name, parameters, arguments, before, after)            \
    static result(*real_##name) parameters;                             \
    PUBLIC result name parameters {                                     \
        if (__builtin_expect(!found_real(#name, (void **)&real_##name), 0)) \
            return STUB_LIBRARY;                                        \
        before;                                                         \
        result status = real_##name arguments;                          \
        after;                                                          \
        return status;                                                  \
    }

#define LOAD(name, parameters, arguments, out, ...) \
    FUNCTION(name, parameters, arguments, struct call call = begin_call(), \
             loaded(#name, status, call, status == OK ? *(out) : NULL, of_image(__VA_ARGS__), CALLER))
#define GET(name, parameters, arguments, out, of, kernel_name) \
    FUNCTION(name, parameters, arguments, struct call call = begin_call(), \
             got(#name, status, call, status == OK ? *(out) : NULL, of, kernel_name, CALLER))
/* Of these only failures are of interest. */
#define WATCH(name, parameters, arguments, ...) \
    FUNCTION(name, parameters, arguments, , if (__builtin_expect(status != OK, 0)) \
             failed(#name, status, CALLER, (struct asked){__VA_ARGS__}))

LOAD(cuModuleLoad, (handle *module, const char *path), (module, path), module, NULL, path, 0, NULL, NULL)
LOAD(cuModuleLoadData, (handle *module, const void *image), (module, image), module, image, NULL, 0, NULL, NULL)
LOAD(cuModuleLoadDataEx, (handle *module, const void *image, unsigned count, void *options, void **values),
     (module, image, count, options, values), module, image, NULL, count, options, values)
LOAD(cuModuleLoadFatBinary, (handle *module, const void *image), (module, image), module, image, NULL, 0, NULL, NULL)
LOAD(cuLibraryLoadData,
     (handle *library, const void *image, void *jit, void **values, unsigned count, void *options, void **more, unsigned n),
     (library, image, jit, values, count, options, more, n), library, image, NULL, count, jit, values)
LOAD(cuLibraryLoadFromFile,
     (handle *library, const char *path, void *jit, void **values, unsigned count, void *options, void **more, unsigned n),
     (library, path, jit, values, count, options, more, n), library, NULL, path, count, jit, values)

GET(cuModuleGetFunction, (handle *function, handle module, const char *name), (function, module, name), function, module, name)
GET(cuLibraryGetKernel, (handle *kernel, handle library, const char *name), (kernel, library, name), kernel, library, name)
GET(cuLibraryGetModule, (handle *module, handle library), (module, library), module, library, NULL)
GET(cuKernelGetFunction, (handle *function, handle kernel), (function, kernel), function, kernel, NULL)

#define SIZES {gx, gy, gz, bx, by, bz, shared}
#define LAUNCH(name)                                                                                                   \
    FUNCTION(name,                                                                                                     \
             (handle kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
              unsigned shared, handle stream, void **arguments, void **extra),                                         \
             (kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra), ,                                     \
             launched(#name, status, kernel, CALLER, (const unsigned[])SIZES))
LAUNCH(cuLaunchKernel)
LAUNCH(cuLaunchKernel_ptsz)
#define LAUNCH_TOGETHER(name)                                                                                          \
    FUNCTION(name,                                                                                                     \
             (handle kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
              unsigned shared, handle stream, void **arguments),                                                       \
             (kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments), ,                                            \
             launched(#name, status, kernel, CALLER, (const unsigned[])SIZES))
LAUNCH_TOGETHER(cuLaunchCooperativeKernel)
LAUNCH_TOGETHER(cuLaunchCooperativeKernel_ptsz)
/* The configuration begins with what other launches take one by one. */
#define LAUNCH_BY_CONFIGURATION(name)                                                                \
    FUNCTION(name, (const unsigned *configuration, handle kernel, void **arguments, void **extra),   \
             (configuration, kernel, arguments, extra), , launched(#name, status, kernel, CALLER, configuration))
LAUNCH_BY_CONFIGURATION(cuLaunchKernelEx)
LAUNCH_BY_CONFIGURATION(cuLaunchKernelEx_ptsz)

/* A node's parameters begin with the function; from version 2 on it may be a kernel, further behind. */
static void node_added(const char *api, result status, void *const *parameters, bool second, void *caller) {
    handle kernel = parameters ? parameters[0] : NULL;
    if (!kernel && second && parameters)
        kernel = parameters[7];
    if (kernel)
        launched(api, status, kernel, caller, (const unsigned *)((const char *)parameters + sizeof(handle)));
}
#define ADD_NODE(name, second)                                                                                     \
    FUNCTION(name, (handle * node, handle graph, const handle *before, size_t count, void *const *parameters),     \
             (node, graph, before, count, parameters), , node_added(#name, status, parameters, second, CALLER))
ADD_NODE(cuGraphAddKernelNode, false)
ADD_NODE(cuGraphAddKernelNode_v2, true)

/* That it began with CUDA is told even of a program that then does nothing which is. */
static void initialized(result status, void *caller) {
    if (status == OK) {
        listen_to_driver();
        see_device();
    } else
        failed("cuInit", status, caller, (struct asked){.bytes = 0});
}
FUNCTION(cuInit, (unsigned flags), (flags), , initialized(status, CALLER))
WATCH(cuDevicePrimaryCtxRetain, (handle * context, int device), (context, device), .bytes = 0)
WATCH(cuCtxSynchronize, (void), (), .bytes = 0)
WATCH(cuCtxSynchronize_v2, (handle context), (context), .bytes = 0)
WATCH(cuEventSynchronize, (handle event), (event), .bytes = 0)
WATCH(cuEventQuery, (handle event), (event), .bytes = 0)
#define OF_STREAM(name) WATCH(name, (handle stream), (stream), .bytes = 0)
OF_STREAM(cuStreamSynchronize)
OF_STREAM(cuStreamSynchronize_ptsz)
OF_STREAM(cuStreamQuery)
OF_STREAM(cuStreamQuery_ptsz)
#define OF_TWO(name) WATCH(name, (handle first, handle stream), (first, stream), .bytes = 0)
OF_TWO(cuEventRecord)
OF_TWO(cuEventRecord_ptsz)
#define COPY(name) WATCH(name, (uint64_t to, uint64_t from, size_t size), (to, from, size), .bytes = size)
COPY(cuMemcpy)
COPY(cuMemcpy_ptds)
COPY(cuMemcpyDtoH_v2)
COPY(cuMemcpyDtoH_v2_ptds)
COPY(cuMemcpyHtoD_v2)
COPY(cuMemcpyHtoD_v2_ptds)
#define COPY_ASYNC(name) \
    WATCH(name, (uint64_t to, uint64_t from, size_t size, handle stream), (to, from, size, stream), .bytes = size)
COPY_ASYNC(cuMemcpyAsync)
COPY_ASYNC(cuMemcpyAsync_ptsz)
COPY_ASYNC(cuMemcpyDtoHAsync_v2)
COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz)
COPY_ASYNC(cuMemcpyHtoDAsync_v2)
COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz)
WATCH(cuMemAlloc_v2, (uint64_t *address, size_t size), (address, size), .bytes = size)
WATCH(cuMemAllocManaged, (uint64_t *address, size_t size, unsigned flags), (address, size, flags), .bytes = size)
#define ALLOCATE_ASYNC(name) \
    WATCH(name, (uint64_t * address, size_t size, handle stream), (address, size, stream), .bytes = size)
ALLOCATE_ASYNC(cuMemAllocAsync)
ALLOCATE_ASYNC(cuMemAllocAsync_ptsz)
WATCH(cuMemCreate, (uint64_t *memory, size_t size, const void *properties, uint64_t flags),
      (memory, size, properties, flags), .bytes = size)
WATCH(cuLinkAddData_v2,
      (handle state, int type, void *data, size_t size, const char *name, unsigned count, void *options, void **values),
      (state, type, data, size, name, count, options, values), .bytes = size)
WATCH(cuLinkComplete, (handle state, void **image, size_t *size), (state, image, size), .bytes = 0)
#define FROM_POOL(name)                                                                                             \
    WATCH(name, (uint64_t * address, size_t size, handle pool, handle stream), (address, size, pool, stream),       \
          .bytes = size)
FROM_POOL(cuMemAllocFromPoolAsync)
FROM_POOL(cuMemAllocFromPoolAsync_ptsz)
WATCH(cuMemAllocHost_v2, (void **address, size_t size), (address, size), .bytes = size)
WATCH(cuMemHostAlloc, (void **address, size_t size, unsigned flags), (address, size, flags), .bytes = size)
enum { DYNAMIC_SHARED = 8 };
WATCH(cuFuncSetAttribute, (handle kernel, int which, int value), (kernel, which, value), .kernel = kernel,
      .bytes = which == DYNAMIC_SHARED ? value : 0)
WATCH(cuKernelSetAttribute, (int which, int value, handle kernel, int device), (which, value, kernel, device),
      .kernel = kernel, .bytes = which == DYNAMIC_SHARED ? value : 0)
WATCH(cuModuleGetGlobal_v2, (uint64_t *address, size_t *size, handle module, const char *name),
      (address, size, module, name), .library = module, .name = name)
WATCH(cuLibraryGetGlobal, (uint64_t *address, size_t *size, handle library, const char *name),
      (address, size, library, name), .library = library, .name = name)

#include "graphs.h"
#include "others.h"

static void *wrapped_address(const char *asked, void *real);
#define ASK(name, parameters, arguments) \
    FUNCTION(name, parameters, arguments, , if (status == OK && function && *function) *function = wrapped_address(symbol, *function))
ASK(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags), (symbol, function, version, flags))
ASK(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, void *found),
    (symbol, function, version, flags, found))

#define ROW(name) {#name, (void *)name, (void **)&real_##name}
static const struct function functions[] = {
    ROW(cuModuleLoad), ROW(cuModuleLoadData), ROW(cuModuleLoadDataEx), ROW(cuModuleLoadFatBinary),
    ROW(cuLibraryLoadData), ROW(cuLibraryLoadFromFile), ROW(cuModuleGetFunction), ROW(cuLibraryGetKernel),
    ROW(cuLibraryGetModule), ROW(cuKernelGetFunction), ROW(cuLaunchKernel), ROW(cuLaunchKernel_ptsz),
    ROW(cuLaunchCooperativeKernel), ROW(cuLaunchCooperativeKernel_ptsz), ROW(cuLaunchKernelEx),
    ROW(cuLaunchKernelEx_ptsz), ROW(cuGraphAddKernelNode), ROW(cuGraphAddKernelNode_v2), ROW(cuInit),
    ROW(cuDevicePrimaryCtxRetain), ROW(cuCtxSynchronize), ROW(cuCtxSynchronize_v2), ROW(cuEventSynchronize),
    ROW(cuEventQuery), ROW(cuStreamSynchronize), ROW(cuStreamSynchronize_ptsz), ROW(cuStreamQuery),
    ROW(cuStreamQuery_ptsz), ROW(cuEventRecord), ROW(cuEventRecord_ptsz),
    ROW(cuMemcpy), ROW(cuMemcpy_ptds), ROW(cuMemcpyDtoH_v2), ROW(cuMemcpyDtoH_v2_ptds), ROW(cuMemcpyHtoD_v2),
    ROW(cuMemcpyHtoD_v2_ptds), ROW(cuMemcpyAsync), ROW(cuMemcpyAsync_ptsz), ROW(cuMemcpyDtoHAsync_v2),
    ROW(cuMemcpyDtoHAsync_v2_ptsz), ROW(cuMemcpyHtoDAsync_v2), ROW(cuMemcpyHtoDAsync_v2_ptsz), ROW(cuMemAlloc_v2),
    ROW(cuMemAllocManaged), ROW(cuMemAllocAsync), ROW(cuMemAllocAsync_ptsz), ROW(cuMemCreate), ROW(cuLinkAddData_v2),
    ROW(cuLinkComplete), ROW(cuGetProcAddress), ROW(cuGetProcAddress_v2), ROW(cuMemAllocFromPoolAsync),
    ROW(cuMemAllocFromPoolAsync_ptsz), ROW(cuMemAllocHost_v2), ROW(cuMemHostAlloc), ROW(cuFuncSetAttribute),
    ROW(cuKernelSetAttribute), ROW(cuModuleGetGlobal_v2), ROW(cuLibraryGetGlobal),
#define NAMED(name) ROW(name),
    GRAPH_FUNCTIONS(NAMED) OTHER_FUNCTIONS(NAMED) CHILD_FUNCTIONS(NAMED)
};
#define FUNCTIONS (sizeof functions / sizeof *functions)

static const struct function *function_named(const char *name) {
    for (size_t index = 0; index < FUNCTIONS; index++)
        if (strcmp(functions[index].name, name) == 0)
            return &functions[index];
    return NULL;
}

/* Ours for the driver's function of this name; for anything else what was found. */
static void *ours_for(const char *name, void *real) {
    const struct function *function = function_named(name);
    if (!function || real == function->ours)
        return real;
    if (!*function->real)
        *function->real = real;
    return *function->real == real ? function->ours : real;
}

/* `cuGetProcAddress` gives `_v2` or `_ptsz` for the plain name, as the caller's version and flags demand: only the
 * address tells which. Looking that up takes a while, so names that cannot be ours go first. */
static void *wrapped_address(const char *asked, void *real) {
    Dl_info found;
    size_t size = strlen(asked);
    bool wanted = false;
    for (size_t index = 0; index < FUNCTIONS && !wanted; index++)
        wanted = strncmp(functions[index].name, asked, size) == 0;
    if (!wanted || !dladdr(real, &found) || found.dli_saddr != real || !found.dli_sname || !of_driver(real))
        return real;
    return ours_for(found.dli_sname, real);
}

/* ---- compilation by the driver ---- */

/* Its signature is the driver's secret: every register and some of the stack are handed on. */
typedef uint64_t jit_function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                              uint64_t, uint64_t, uint64_t);
static jit_function *real_jit;

static uint64_t compile(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,
                        uint64_t i, uint64_t j, uint64_t k, uint64_t l) {
    uint64_t start = now();
    uint64_t answer = real_jit(a, b, c, d, e, f, g, h, i, j, k, l);
    jit_time += now() - start;
    jit_calls++;
    return answer;
}

/* ---- dlsym ---- */

#define JIT "__cuda_CallJitEntryPoint"

static void *wrapped_dlsym(void *from, const char *name) {
    void *found = real_dlsym(from, name);
    if (!found)
        return NULL;
    if (strcmp(name, JIT) == 0) {
        real_jit = (jit_function *)found;
        return (void *)compile;
    }
    const struct function *function = function_named(name);
    if (function && found == function->ours) /* asked of everybody, and we came first */
        return found_real(name, function->real) ? found : NULL;
    return of_driver(found) ? ours_for(name, found) : found;
}

/* Which function answers: for most names the real one, which must not see us as its caller. */
__attribute__((used, visibility("hidden"))) void *cuwheel_dlsym_for(void *from, const char *name) {
    find_dlsym();
    bool ours = folder[0] && from != RTLD_NEXT && name &&
                ((name[0] == 'c' && name[1] == 'u' && function_named(name)) || (name[0] == '_' && strcmp(name, JIT) == 0));
    return ours ? (void *)wrapped_dlsym : (void *)real_dlsym;
}

#if defined(__x86_64__)
__asm__(".text\n.globl dlsym\n.type dlsym,@function\ndlsym:\n\t.cfi_startproc\n\tendbr64\n"
        "\tpushq %rdi\n\t.cfi_adjust_cfa_offset 8\n\tpushq %rsi\n\t.cfi_adjust_cfa_offset 8\n"
        "\tsubq $8, %rsp\n\t.cfi_adjust_cfa_offset 8\n\tcall cuwheel_dlsym_for\n"
        "\taddq $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\tpopq %rsi\n\t.cfi_adjust_cfa_offset -8\n"
        "\tpopq %rdi\n\t.cfi_adjust_cfa_offset -8\n\tjmp *%rax\n\t.cfi_endproc\n\t.size dlsym,.-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl dlsym\n.type dlsym,%function\ndlsym:\n\t.cfi_startproc\n"
        "\tstp x29, x30, [sp, #-32]!\n\t.cfi_def_cfa_offset 32\n\t.cfi_offset 29, -32\n\t.cfi_offset 30, -24\n"
        "\tmov x29, sp\n\tstp x0, x1, [sp, #16]\n\tbl cuwheel_dlsym_for\n\tmov x16, x0\n"
        "\tldp x0, x1, [sp, #16]\n\tldp x29, x30, [sp], #32\n\t.cfi_def_cfa_offset 0\n\t.cfi_restore 29\n"
        "\t.cfi_restore 30\n\tbr x16\n\t.cfi_endproc\n\t.size dlsym,.-dlsym\n");
#else
#error "the way on to the real dlsym is not written for this processor"
#endif

#include "cupti.h"

/* ---- beginning and end ---- */

/* The child tells for itself which GPU it has, and which calls failed. */
static bool counts_of_parent;

static void begin_traced_child(void) {
    counts_of_parent = atomic_load(&launches) > 0;
    begin_child();
    forget_forks();
    pthread_mutex_init(&counting, NULL);
    memset(known, 0, sizeof known);
    atomic_store(&seen, 0);
}

__attribute__((constructor)) static void begin(void) {
    const char *wanted = getenv(VARIABLE);
    began = now();
    find_dlsym();
    if (wanted && wanted[0] == '/' && strlen(wanted) < sizeof folder)
        strcpy(folder, wanted);
    pthread_atfork(before_fork, after_fork, begin_traced_child);
}

__attribute__((destructor)) static void end(void) {
    if (file < 0)
        return;
    for (unsigned index = 0; index < SLOTS && !counts_of_parent; index++) {
        struct kernel *slot = &kernels[index];
        unsigned long count = atomic_load(&slot->count);
        if (count && atomic_load(&slot->launched) && atomic_load(&slot->kind) != GRAPH && begin_event("count", now())) {
            add_handle("kernel", atomic_load(&slot->handle));
            add_text("name", atomic_load(&slot->name), NAME_ROOM);
            add_number("launches", (int64_t)count);
            end_event();
        }
    }
    if (!begin_event("end", now()))
        return;
    add_number("launches", (int64_t)atomic_load(&launches));
    add_number("repeated_failures", (int64_t)atomic_load(&untold));
    add_number("lost", (int64_t)lost);
    end_event();
}
