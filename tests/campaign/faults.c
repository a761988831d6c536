/* Fails, or kills the process at, the n-th call that changes the disk; or writes down the calls that decide what a crash
 * of the machine leaves. Preloaded into the sweep of tests/campaign.
 *
 * Only the process that called `arm` counts, and of its calls those that concern files with names: what goes to a
 * terminal or a pipe changes nothing that could be left half done. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { OFF, KILL, TORN, ONCE, FULL, REFUSED };
enum kind { PLAIN, GROWS = 1, REFUSABLE = 2 };

static volatile int mode = OFF;
static long target;
static volatile long counted;
static pid_t owner;
static int notes = -1;

void arm(int how, long at) {
    target = at;
    counted = 0;
    owner = getpid();
    mode = how;
}

long disarm(void) {
    mode = OFF;
    return counted;
}

/* From now on, calls are written down in this file, one a line: what, and of which paths. */
void watch(const char *place) {
    owner = getpid();
    notes = place ? syscall(SYS_openat, AT_FDCWD, place, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
}

/* Past our own `write`, in one call: threads do not mix their lines. */
static void note(const char *what, const char *path, const char *to) {
    char line[17000], folder[4096] = "";
    if (notes < 0 || owner != getpid()) return;
    if (path[0] != '/') getcwd(folder, sizeof folder - 1), strcat(folder, "/");
    int size = snprintf(line, sizeof line, "%s\t%s%s\t%s\n", what, folder, path, to);
    syscall(SYS_write, notes, line, (size_t)size);
}

static void note_file(const char *what, int fd) {
    char link[64], path[4096];
    if (notes < 0 || owner != getpid()) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = 0;
    note(what, path, "");
}

/* The whole path of what is named beside an open folder. */
static const char *place_of(int at, const char *name, char *path, size_t room) {
    char link[64];
    if (at == AT_FDCWD || name[0] == '/') return name;
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t size = readlink(link, path, 4096);
    if (size <= 0) return name;
    snprintf(path + size, room - (size_t)size, "/%s", name);
    return path;
}

static void note_at(const char *what, int at, const char *name) {
    char path[8200];
    if (notes < 0 || owner != getpid()) return;
    note(what, place_of(at, name, path, sizeof path), "");
}

static void note_rename(int a, const char *from, int b, const char *to) {
    char before[8200], after[8200];
    if (notes < 0 || owner != getpid()) return;
    note("rename", place_of(a, from, before, sizeof before), place_of(b, to, after, sizeof after));
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether this call is to fail: one that needs room on the disk where a full one has none, one that a file system may
 * refuse from there on. */
static int due(int kind) {
    if (mode == OFF || owner != getpid()) return 0;
    if ((mode == ONCE || mode == FULL) && !(kind & GROWS)) return 0;
    long number = __sync_add_and_fetch(&counted, 1);
    if (number < target) return 0;
    if (mode == KILL) die();
    if (mode == REFUSED) return kind & REFUSABLE;
    if (mode == TORN) return number == target;
    return mode == FULL || number == target;
}

static int full(void) {
    errno = ENOSPC;
    return -1;
}

static int failed(int kind) {
    errno = mode != REFUSED ? ENOSPC : kind & GROWS ? EXDEV : EPERM;
    return -1;
}

static int regular(int fd) {
    struct stat found;
    return fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A write that is torn leaves its first half; so does the one that meets the end of the room. */
#define DEFINE_WRITE(name, parameters, fd, size, whole, half)                                     \
    ssize_t name parameters {                                                                     \
        if (notes >= 0 && regular(fd)) note_file("write", fd);                                    \
        if (mode == OFF || !regular(fd) || !due(GROWS)) return REAL(name) whole;                      \
        if (mode == ONCE || (size) < 2 || counted > target) return full();                       \
        ssize_t done = REAL(name) half;                                                           \
        if (mode == TORN) die();                                                                  \
        return done;                                                                              \
    }

DEFINE_WRITE(write, (int fd, const void *data, size_t size), fd, size, (fd, data, size), (fd, data, size / 2))
DEFINE_WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), fd, size, (fd, data, size, at), (fd, data, size / 2, at))
DEFINE_WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, size, (fd, data, size, at), (fd, data, size / 2, at))
DEFINE_WRITE(sendfile, (int out, int in, off_t *at, size_t size), out, size, (out, in, at, size), (out, in, at, size / 2))
DEFINE_WRITE(sendfile64, (int out, int in, off64_t *at, size_t size), out, size, (out, in, at, size), (out, in, at, size / 2))
DEFINE_WRITE(copy_file_range, (int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags), out, size,
             (in, from, out, to, size, flags), (in, from, out, to, size / 2, flags))

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (notes >= 0 && regular(fd)) note_file("write", fd);
    if (mode == OFF || !regular(fd) || !due(GROWS)) return REAL(writev)(fd, parts, count);
    if (mode == TORN) die();
    return full();
}

#define DEFINE_CALL(name, parameters, kind, arguments, ...)                                       \
    int name parameters {                                                                         \
        __VA_ARGS__;                                                                              \
        if (!due(kind)) return REAL(name) arguments;                                              \
        if (mode == TORN) die();                                                                  \
        return failed(kind);                                                                      \
    }

DEFINE_CALL(mkdir, (const char *path, mode_t how), GROWS, (path, how))
DEFINE_CALL(mkdirat, (int at, const char *path, mode_t how), GROWS, (at, path, how))
DEFINE_CALL(link, (const char *from, const char *to), GROWS | REFUSABLE, (from, to))
DEFINE_CALL(linkat, (int a, const char *from, int b, const char *to, int flags), GROWS | REFUSABLE, (a, from, b, to, flags))
DEFINE_CALL(symlink, (const char *from, const char *to), GROWS, (from, to))
DEFINE_CALL(symlinkat, (const char *from, int at, const char *to), GROWS, (from, at, to))
DEFINE_CALL(rename, (const char *from, const char *to), PLAIN, (from, to), note("rename", from, to))
DEFINE_CALL(renameat, (int a, const char *from, int b, const char *to), PLAIN, (a, from, b, to), note_rename(a, from, b, to))
DEFINE_CALL(unlink, (const char *path), PLAIN, (path), note("unlink", path, ""))
DEFINE_CALL(unlinkat, (int at, const char *path, int flags), PLAIN, (at, path, flags), note_at("unlink", at, path))
DEFINE_CALL(rmdir, (const char *path), PLAIN, (path))
DEFINE_CALL(ftruncate, (int fd, off_t size), PLAIN, (fd, size))
DEFINE_CALL(ftruncate64, (int fd, off64_t size), PLAIN, (fd, size))
DEFINE_CALL(fsync, (int fd), PLAIN, (fd), note_file("sync", fd))
DEFINE_CALL(fdatasync, (int fd), PLAIN, (fd), note_file("sync", fd))
DEFINE_CALL(chmod, (const char *path, mode_t how), REFUSABLE, (path, how))
DEFINE_CALL(fchmod, (int fd, mode_t how), REFUSABLE, (fd, how))
DEFINE_CALL(fchmodat, (int at, const char *path, mode_t how, int flags), REFUSABLE, (at, path, how, flags))
DEFINE_CALL(utimensat, (int at, const char *path, const struct timespec times[2], int flags), PLAIN, (at, path, times, flags))

#define DEFINE_OPEN(name, parameters, arguments)                                                  \
    int name parameters {                                                                         \
        mode_t how = 0;                                                                           \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                              \
            va_list rest;                                                                         \
            va_start(rest, flags);                                                                \
            how = va_arg(rest, mode_t);                                                           \
            va_end(rest);                                                                         \
            if (due(GROWS)) {                                                                         \
                if (mode == TORN) die();                                                          \
                return full();                                                                    \
            }                                                                                     \
        }                                                                                         \
        return REAL(name) arguments;                                                              \
    }

DEFINE_OPEN(open, (const char *path, int flags, ...), (path, flags, how))
DEFINE_OPEN(open64, (const char *path, int flags, ...), (path, flags, how))
DEFINE_OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, how))
DEFINE_OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, how))
