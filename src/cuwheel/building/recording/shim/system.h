/* What differs from system to system: memory, files, the clock, and the process that a line tells of. This is Linux;
 * ../windows/system.h has the same functions. No malloc: parts of this run in a child of vfork, inside programs of others. */
#ifndef CUWHEEL_SYSTEM_H
#define CUWHEEL_SYSTEM_H

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

#define PATH_ROOM 4096

SHARED void *larger_room(void *at, size_t had, size_t room) {
    void *more = at ? mremap(at, had, room, MREMAP_MAYMOVE)
                    : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return more == MAP_FAILED ? NULL : more;
}

SHARED void release_room(void *at, size_t room) { munmap(at, room); }

/* All of a file, up to a limit, ended by a zero byte that is not counted. */
SHARED bool read_file(const char *path, size_t limit, struct text *into) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return false;
    struct stat found;
    const size_t piece = 8192;
    ssize_t count = fstat(file, &found);
    /* Reading a pipe (`nvcc -optf <(echo …)`) would take what the compiler is to read. Files of /proc are regular. */
    if (count == 0 && !S_ISREG(found.st_mode))
        count = -1;
    while (count >= 0 && into->size < limit && reserve(into, piece) &&
           (count = read(file, into->at + into->size, piece)) > 0)
        into->size += (size_t)count;
    close(file);
    if (count < 0 || into->lost)
        return false;
    put(into, "", 1);
    into->size -= 1;
    return !into->lost;
}

SHARED const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A file of options in another encoding, made UTF-8; its name. On Linux nobody reads others. */
SHARED const char *decoded(struct text *text) {
    (void)text;
    return NULL;
}

/* The name by which a program is known as a tool. */
SHARED const char *tool_name(const char *path, char *room, size_t *length) {
    (void)room;
    *length = strlen(last_part(path));
    return last_part(path);
}

SHARED bool is_absolute(const char *path) { return *path == '/'; }

SHARED bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* Names of variables; of so many bytes. */
SHARED bool same_name(const char *one, const char *other, size_t count) { return strncmp(one, other, count) == 0; }

SHARED int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

SHARED int process_id(void) { return (int)getpid(); }

/* The folder that the process is in; empty where it cannot be told. */
SHARED void put_folder(struct text *into) {
    if (reserve(into, PATH_ROOM) && getcwd(into->at, PATH_ROOM))
        into->size = strlen(into->at);
}

/* The command line of its parent, cut to so many bytes. */
SHARED void put_parent_command(struct text *into, size_t limit) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)getppid());
    if (!read_file(path, limit, into))
        into->size = 0;
    if (into->size > limit)
        into->size = limit;
    while (into->size > 0 && into->at[into->size - 1] == 0)
        into->size--;
    for (size_t at = 0; at < into->size; at++)
        if (into->at[at] == 0)
            into->at[at] = ' ';
}

SHARED bool write_file(const char *path, const char *bytes, size_t count) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool written = file >= 0 && write(file, bytes, count) == (ssize_t)count;
    if (file >= 0)
        close(file);
    return written;
}

/* In one write: lines of others cannot get into it. */
SHARED bool append_to(const char *path, const struct text *line, bool lasting) {
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    if (file < 0)
        return false;
    size_t done = 0;
    while (done < line->size) {
        ssize_t count = write(file, line->at + done, line->size - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    if (lasting)
        fdatasync(file);
    else
        sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE); /* begun, not waited for */
    close(file);
    return done == line->size;
}

#define SEARCH "/bin:/usr/bin" /* of execvp, where PATH is not set */

/* Where a program without a folder is, as execvp finds it. */
SHARED const char *searched(const char *name, char *path) {
    const char *folders = getenv("PATH");
    size_t length = strlen(name);
    for (const char *at = folders ? folders : SEARCH; length > 0 && at;) {
        size_t size = strcspn(at, ":");
        if (size + length + 2 < PATH_ROOM) {
            memcpy(path, size ? at : ".", size ? size : 1); /* an empty one is the current folder */
            size += size == 0;
            path[size++] = '/';
            memcpy(path + size, name, length + 1);
            struct stat found;
            if (stat(path, &found) == 0 && S_ISREG(found.st_mode) && access(path, X_OK) == 0)
                return path;
        }
        at = strchr(at, ':');
        at = at ? at + 1 : NULL;
    }
    return NULL;
}

#endif
