/* The driver's own log, which drivers for CUDA 12.9 and later keep. It gives reasons that no call returns, and it is the
 * only word about code that the runtime of CUDA 11 loads: that goes through the driver's private tables. */
#include <execinfo.h>

enum { LOG_ERROR = 0, MOST_LOGGED = 64, FRAMES = 48 };
#define RETURNED "Returning " /* … 218 (CUDA_ERROR_INVALID_PTX) from cuModuleLoadDataEx */
static atomic_uint logged_lines;

static bool named(const char *path, const char *start) {
    const char *slash = strrchr(path, '/');
    return strncmp(slash ? slash + 1 : path, start, strlen(start)) == 0;
}

/* Who called into CUDA's libraries: the first on the stack, above the driver, that is none of them. Where that is one of our
 * functions, the program's call is a public one, and `seen`. */
static void add_caller_of_driver(void) {
    static struct place place, ours; /* guarded by the lock of the line */
    void *frames[FRAMES];
    bool in_driver = false;
    int count = backtrace(frames, FRAMES);
    find_place(function_named, &ours);
    for (int index = 0; index < count; index++) {
        if (!find_place(frames[index], &place))
            continue;
        bool driver = named(place.path, "libcuda.so");
        if (in_driver && strcmp(place.path, ours.path) == 0) {
            add_number("seen", 1);
            return;
        }
        if (in_driver && !driver && !named(place.path, "libcudart")) {
            add_text("caller", place.path, sizeof place.path);
            return;
        }
        in_driver = in_driver || driver;
    }
}

/* Called from within the driver, on the thread of the call that fails. What a public function returns is told by that
 * function, and what the driver says to our own questions is of no interest. */
static void logged(void *data, int level, const char *message, size_t size) {
    (void)data;
    if (level != LOG_ERROR || busy || !message || memmem(message, size, RETURNED, sizeof RETURNED - 1))
        return;
    if (atomic_fetch_add(&logged_lines, 1) >= MOST_LOGGED || !begin_event("log", now()))
        return;
    add_text("log", message, size < 1024 ? size : 1024);
    add_caller_of_driver();
    end_event();
}

static void listen_to_driver(void) {
    static atomic_bool listening;
    int (*add_listener)(void (*)(void *, int, const char *, size_t), void *, void **) = driver_symbol("cuLogsRegisterCallback");
    void *listener, *frame;
    if (!add_listener || atomic_exchange(&listening, true))
        return;
    backtrace(&frame, 1); /* loads the library that it needs, for which the driver's thread is no place */
    add_listener(logged, NULL, &listener);
}
