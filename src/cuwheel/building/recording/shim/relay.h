/* A program's output: passed on as it is, and kept. */
#ifndef CUWHEEL_RELAY_H
#define CUWHEEL_RELAY_H

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <termios.h>

#include "text.h"

#define MAX_KEPT (16u << 20) /* of one stream of one call: a preprocessor's output can be endless */
#define MAX_TAIL (1u << 19)  /* of what the recorded command itself printed: its end */
#define HIGH 100             /* our own descriptors stay away from those that callers know by their numbers */

struct stream {
    int target;    /* the caller's descriptor; -1: it had none, or it was the null device, and nobody listens */
    int given;     /* what the program gets; -1: the caller's own */
    int source;    /* where we read what it wrote; -1: nothing to read (any more) */
    int kept;      /* the file in the record */
    size_t stored; /* bytes in it */
    bool cut;      /* there was more than we keep */
    bool tail;     /* of the command itself: the end of it is kept, and its terminal stays the caller's in all it sets */
    struct termios modes; /* of the terminal that the program got, as they were last */
    char name[96]; /* of that file, below the record */
};

SHARED int moved_high(int file) {
    if (file < 0)
        return file;
    int high = fcntl(file, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0)
        high = fcntl(file, F_DUPFD_CLOEXEC, 3);
    if (high < 0)
        return file;
    close(file);
    return high;
}

SHARED bool same_target(int one, int other) {
    struct stat first, second;
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

SHARED bool goes_nowhere(int file) {
    struct stat found;
    if (fstat(file, &found) != 0)
        return true;
    return S_ISCHR(found.st_mode) && found.st_rdev == makedev(1, 3);
}

/* A terminal of our own where the caller has one: compilers colour and wrap by what they write to. */
static bool open_terminal(struct stream *stream) {
    struct termios modes;
    struct winsize size;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0)
        return false;
    const char *name = grantpt(master) == 0 && unlockpt(master) == 0 ? ptsname(master) : NULL;
    int slave = name ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (slave < 0 || tcgetattr(stream->target, &modes) != 0) {
        close(master);
        if (slave >= 0)
            close(slave);
        return false;
    }
    modes.c_oflag &= (tcflag_t)~OPOST; /* the caller's terminal does that */
    if (!stream->tail)
        modes.c_lflag &= (tcflag_t) ~(ECHO | ISIG | ICANON);
    tcsetattr(slave, TCSANOW, &modes);
    tcgetattr(slave, &stream->modes);
    if (ioctl(stream->target, TIOCGWINSZ, &size) == 0)
        ioctl(slave, TIOCSWINSZ, &size);
    stream->source = moved_high(master);
    stream->given = moved_high(slave);
    return true;
}

static bool open_pipe(struct stream *stream) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    stream->source = moved_high(ends[0]);
    stream->given = moved_high(ends[1]);
    return true;
}

/* Decide what the program writes to. Where nobody listens it is kept all the same; never straight into the record: on a
 * full disk the program would fail, which the null device never lets it. */
SHARED void open_stream(struct stream *stream, int target, const char *record, const char *name, bool tail) {
    char path[4096 + 128];
    *stream = (struct stream){.target = target, .given = -1, .source = -1, .kept = -1, .tail = tail};
    snprintf(stream->name, sizeof stream->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", record, name);
    stream->kept = moved_high(open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
    if (stream->kept < 0)
        return;
    if (goes_nowhere(target)) {
        stream->target = -1;
        open_pipe(stream);
    } else if (!(isatty(target) && open_terminal(stream)) && !open_pipe(stream)) {
        stream->given = -1;
    }
}

static bool write_all(int file, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t done = write(file, bytes, count);
        if (done > 0) {
            bytes += done;
            count -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) { /* some callers' pipes do not wait */
            struct pollfd ready = {.fd = file, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            return false;
        }
    }
    return true;
}

static void close_source(struct stream *stream) {
    close(stream->source);
    stream->source = -1;
}

/* Both streams of the command are kept in one file: its length is asked, and not counted. */
static void keep_tail(struct stream *stream, const char *piece, size_t count) {
    static char last[MAX_TAIL / 2];
    off_t size = lseek(stream->kept, 0, SEEK_END);
    if (size >= 0 && (size_t)size + count > MAX_TAIL) {
        ssize_t had = pread(stream->kept, last, sizeof last, size - (off_t)sizeof last);
        const char *line = had > 0 ? memchr(last, '\n', (size_t)had) : NULL; /* a secret that is cut is not known any more */
        if (ftruncate(stream->kept, 0) == 0 && line)
            write_all(stream->kept, line + 1, (size_t)(last + had - line - 1));
        stream->cut = true;
    }
    write_all(stream->kept, piece, count);
}

static void keep(struct stream *stream, const char *piece, size_t count) {
    size_t room = MAX_KEPT - stream->stored;
    size_t most = count < room ? count : room;
    stream->cut |= most < count;
    if (write_all(stream->kept, piece, most))
        stream->stored += most;
}

/* Programs that draw on a whole terminal set it up by their output: they mean the one that somebody types at. */
static void pass_on_modes(struct stream *stream) {
    struct termios theirs, callers;
    if (!stream->tail || stream->target < 0 || tcgetattr(stream->source, &theirs) != 0)
        return;
    if (theirs.c_lflag == stream->modes.c_lflag && theirs.c_iflag == stream->modes.c_iflag &&
        theirs.c_oflag == stream->modes.c_oflag &&
        memcmp(theirs.c_cc, stream->modes.c_cc, sizeof theirs.c_cc) == 0)
        return;
    stream->modes = theirs;
    if (tcgetattr(stream->target, &callers) != 0)
        return;
    callers.c_lflag = theirs.c_lflag;
    callers.c_iflag = theirs.c_iflag;
    callers.c_oflag = (theirs.c_oflag & (tcflag_t)~OPOST) | (callers.c_oflag & OPOST); /* that one we took away */
    memcpy(callers.c_cc, theirs.c_cc, sizeof theirs.c_cc);
    tcsetattr(stream->target, TCSANOW, &callers);
}

/* The caller's terminal has another size now. */
SHARED void pass_on_size(const struct stream *stream) {
    struct winsize size;
    if (stream->source >= 0 && stream->target >= 0 && ioctl(stream->target, TIOCGWINSZ, &size) == 0)
        ioctl(stream->source, TIOCSWINSZ, &size);
}

/* Take what is there, and close it when nothing more will come. */
static void take(struct stream *stream) {
    char piece[1 << 16];
    ssize_t count = read(stream->source, piece, sizeof piece);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (count <= 0) { /* the end; of a terminal it is an error */
        close_source(stream);
        return;
    }
    if (stream->kept >= 0)
        (stream->tail ? keep_tail : keep)(stream, piece, (size_t)count);
    pass_on_modes(stream);
    if (stream->target >= 0 && !write_all(stream->target, piece, (size_t)count))
        close_source(stream); /* whoever listened has left: the program is to feel it too */
}

/* What the program left running may write for ever: to the null device, or to what the command was started with.
 * Somebody must go on reading, and passing on. */
static void leave_reader(struct stream *stream) {
    if ((stream->target >= 0 && !stream->tail) || stream->source < 0 || fork() != 0)
        return;
    setsid();
    for (int file = 0; file < 1024; file++)
        if (file != stream->source && file != stream->target)
            close(file);
    char piece[4096];
    ssize_t count;
    while ((count = read(stream->source, piece, sizeof piece)) > 0 || (count < 0 && errno == EINTR))
        if (count > 0 && stream->target >= 0 && !write_all(stream->target, piece, (size_t)count))
            break;
    _exit(0);
}

/* What is still in the pipe when the program has ended. One that it left behind may hold it open for ever. */
SHARED void drain(struct stream *stream) {
    while (stream->source >= 0) {
        struct pollfd ready = {.fd = stream->source, .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0) {
            pass_on_modes(stream);
            leave_reader(stream);
            return;
        }
        take(stream);
    }
}

SHARED void finish_stream(struct stream *stream, const char *record) {
    char path[4096 + 128];
    struct stat found;
    if (stream->kept < 0)
        return;
    if (fstat(stream->kept, &found) == 0 && found.st_size == 0) {
        snprintf(path, sizeof path, "%s/%s", record, stream->name);
        unlink(path);
        stream->name[0] = 0;
    } else if (!stream->tail && found.st_size > (off_t)MAX_KEPT && ftruncate(stream->kept, MAX_KEPT) == 0) {
        stream->cut = true;
    }
    close(stream->kept);
}

#endif
