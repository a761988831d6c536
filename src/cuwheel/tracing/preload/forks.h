/* Programs fork while other threads are in our code: what must not be in the middle of something then. */
#include <stdatomic.h>

/* The loader's own locks are not set free in a child of fork: so a fork waits until no thread is in the loader for us.
 * Nobody waits for long, and none for a thread that has the loader's lock itself: it may be in a library's constructor. */
static atomic_int in_loader;
static atomic_int forking;

static void enter_loader(void) {
    int before = errno;
    for (int tries = 0; tries < 50 && atomic_load(&forking); tries++)
        usleep(1000);
    atomic_fetch_add(&in_loader, 1);
    errno = before;
}

static void leave_loader(void) { atomic_fetch_sub(&in_loader, 1); }

/* A handler of a signal may fork too, and have interrupted who holds the lock: then it is done without after a while. */
static bool waited_for(pthread_mutex_t *lock) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(lock, &until) == 0;
}

/* Of this thread: others may fork at the same time, and a handler of a signal in the middle of it. */
static __thread unsigned forks __attribute__((tls_model("initial-exec")));
static __thread bool holds_writing __attribute__((tls_model("initial-exec")));

static void before_fork(void) {
    if (forks++)
        return;
    holds_writing = waited_for(&writing);
    atomic_fetch_add(&forking, 1);
    for (int tries = 0; tries < 50 && atomic_load(&in_loader); tries++)
        usleep(1000);
}

static void after_fork(void) {
    if (!forks || --forks)
        return;
    atomic_fetch_sub(&forking, 1);
    if (holds_writing)
        pthread_mutex_unlock(&writing);
}

/* In the child nobody is left but this thread. */
static void forget_forks(void) {
    forks = 0;
    atomic_store(&forking, 0);
    atomic_store(&in_loader, 0);
}
