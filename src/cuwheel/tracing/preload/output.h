/* Lines of JSON into a file of this process: `trace-PID-NS.jsonl` in the folder of the trace.
 *
 * The file is made at the first event, so that programs without CUDA leave nothing. A line is one write: what was seen
 * until a SIGKILL is in the file. Nothing here may disturb the program: what cannot be written is counted and let go. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "CUWHEEL_TRACE"
#define HIGH_FD 200 /* out of the way of programs that count theirs */
#define NAME_ROOM 16384

static char folder[PATH_MAX];
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;
static struct stat file_identity;
static unsigned long lost;
static uint64_t began;
static char line[4 * NAME_ROOM];
static size_t length;
static bool cut;
static int program_errno; /* as the program had it before the event */
/* This thread holds the lock of the line, or asks the driver something of its own accord. */
static __thread unsigned busy __attribute__((tls_model("initial-exec")));

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void add_bytes(const char *text, size_t size) {
    if (length + size + 4 > sizeof line) /* room for what closes the line */
        cut = true;
    if (cut)
        return;
    memcpy(line + length, text, size);
    length += size;
}

static void add(const char *text) { add_bytes(text, strlen(text)); }

static void add_number(const char *key, int64_t value) {
    char text[96];
    add_bytes(text, (size_t)snprintf(text, sizeof text, ",\"%s\":%lld", key, (long long)value));
}

/* A handle is a name for something, and 64 bits of it are no number of JSON. */
static void add_handle(const char *key, const void *value) {
    char text[96];
    add_bytes(text, (size_t)snprintf(text, sizeof text, ",\"%s\":\"%llx\"", key, (unsigned long long)(uintptr_t)value));
}

/* Bytes that are not ASCII are written as the code point of the same number: whoever reads turns them back. */
static void add_string(const char *text, size_t most) {
    add("\"");
    for (size_t index = 0; index < most && text[index]; index++) {
        unsigned char letter = (unsigned char)text[index];
        char escape[8];
        if (letter >= 32 && letter < 127 && letter != '"' && letter != '\\')
            add_bytes(text + index, 1);
        else
            add_bytes(escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", letter));
    }
    add("\"");
}

static void add_text(const char *key, const char *text, size_t most) {
    char name[64];
    if (!text)
        return;
    add_bytes(name, (size_t)snprintf(name, sizeof name, ",\"%s\":", key));
    add_string(text, most);
}

static void describe_process(void);

static void add_beginning(const char *event, uint64_t time) {
    length = 0;
    cut = false;
    add("{\"event\":\"");
    add(event);
    add("\"");
    add_number("time", (int64_t)(time - began));
    add_number("thread", (int64_t)syscall(SYS_gettid));
}

/* Programs close files they do not know, and open others under the same number. */
static bool still_ours(void) {
    struct stat found;
    return fstat(file, &found) == 0 && found.st_dev == file_identity.st_dev && found.st_ino == file_identity.st_ino;
}

static void write_line(void) {
    if (cut) /* cannot be, but for names longer than there is room: better no line than half of one */
        lost++;
    else {
        add("}\n");
        if (!still_ours() || write(file, line, length) != (ssize_t)length)
            lost++;
    }
}

static bool opened(void) {
    char path[PATH_MAX + 64];
    if (file >= 0 && still_ours())
        return true;
    if (!folder[0])
        return false;
    snprintf(path, sizeof path, "%s/trace-%ld-%llu.jsonl", folder, (long)getpid(), (unsigned long long)now());
    int made = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made < 0)
        return false;
    file = fcntl(made, F_DUPFD_CLOEXEC, HIGH_FD);
    if (file < 0)
        file = made;
    else
        close(made);
    fstat(file, &file_identity);
    describe_process();
    return true;
}

/* Between these two the caller adds what belongs to the event. False: nobody wants to know. */
static bool begin_event(const char *event, uint64_t time) {
    int before = errno;
    pthread_mutex_lock(&writing);
    program_errno = before;
    busy++;
    if (opened()) {
        add_beginning(event, time);
        return true;
    }
    lost++;
    busy--;
    pthread_mutex_unlock(&writing);
    errno = before;
    return false;
}

static void end_event(void) {
    write_line();
    int before = program_errno;
    busy--;
    pthread_mutex_unlock(&writing);
    errno = before;
}

/* A child of fork has its own file, and a lock that nobody holds. */
static bool forked; /* from a process that had used CUDA already, which the driver does not stand */

static void begin_child(void) {
    pthread_mutex_init(&writing, NULL);
    forked = forked || file >= 0;
    if (file >= 0 && still_ours())
        close(file);
    file = -1;
    lost = 0;
    busy = 0;
}
