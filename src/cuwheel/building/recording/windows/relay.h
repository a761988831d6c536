/* A program's output: passed on as it is, and kept. A thread for each stream reads what the program writes. */
#ifndef CUWHEEL_WINDOWS_RELAY_H
#define CUWHEEL_WINDOWS_RELAY_H

#include "system.h"

#define MAX_KEPT (16u << 20) /* of one stream of one call: a preprocessor's output can be endless */
#define MAX_TAIL (1u << 19)  /* of what the recorded command itself printed: its end */
#define PIECE (1u << 16)
#define RELAY_WORD L"--cuwheel-relay"

struct stream {
    HANDLE target;  /* the caller's; NULL: it had none, and nobody listens */
    HANDLE given;   /* what the program writes to; NULL: the caller's own */
    HANDLE source;  /* where we read what it wrote; NULL: nothing to read (any more) */
    HANDLE kept;    /* the file in the record */
    HANDLE thread;  /* that reads */
    HANDLE wake;    /* it is asked for something */
    HANDLE settled; /* it has passed on all that was there */
    volatile LONG leaving; /* it is to go, and leave the source open */
    size_t stored;  /* bytes in the file */
    bool cut;       /* there was more than we keep */
    bool tail;      /* of the command itself: the end of it is kept */
    bool fetched;   /* the target is a copy of ours, to be closed when nothing more comes: somebody waits for that */
    char name[96];  /* of the file, below the record; empty where there is none */
};

static CRITICAL_SECTION tail_lock; /* both streams of the command are kept in one file */

SHARED bool is_open(HANDLE handle) { return handle && handle != INVALID_HANDLE_VALUE; }

SHARED void close_one(HANDLE *handle) {
    if (is_open(*handle))
        CloseHandle(*handle);
    *handle = NULL;
}

/* Its own end waits for what comes; the program's is an ordinary one. */
static bool open_pipe(struct stream *stream) {
    static volatile LONG count;
    wchar_t name[96];
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
    swprintf(name, 96, L"\\\\.\\pipe\\cuwheel-%lu-%ld-%llx", GetCurrentProcessId(), InterlockedIncrement(&count),
             (unsigned long long)now());
    stream->source = CreateNamedPipeW(name, PIPE_ACCESS_INBOUND | FILE_FLAG_OVERLAPPED | FILE_FLAG_FIRST_PIPE_INSTANCE,
                                      PIPE_TYPE_BYTE | PIPE_WAIT, 1, 0, PIECE, 0, NULL);
    if (!is_open(stream->source))
        return false;
    /* Programs may ask for what it is: the right to read attributes is part of an ordinary pipe's. */
    stream->given = CreateFileW(name, GENERIC_WRITE | FILE_READ_ATTRIBUTES, 0, &inherited, OPEN_EXISTING, 0, NULL);
    if (!is_open(stream->given))
        close_one(&stream->source);
    return is_open(stream->source);
}

static void keep_tail(struct stream *stream, const char *piece, size_t count) {
    static char last[MAX_TAIL / 2];
    LARGE_INTEGER size, from, start = {0};
    EnterCriticalSection(&tail_lock);
    if (GetFileSizeEx(stream->kept, &size) && (uint64_t)size.QuadPart + count > MAX_TAIL) {
        DWORD had = 0;
        from.QuadPart = size.QuadPart - (int64_t)sizeof last;
        if (from.QuadPart < 0)
            from.QuadPart = 0;
        SetFilePointerEx(stream->kept, from, NULL, FILE_BEGIN);
        ReadFile(stream->kept, last, sizeof last, &had, NULL);
        const char *line = memchr(last, '\n', had); /* a secret that is cut is not known any more */
        SetFilePointerEx(stream->kept, start, NULL, FILE_BEGIN);
        SetEndOfFile(stream->kept);
        if (line)
            write_all(stream->kept, line + 1, (size_t)(last + had - line - 1));
        stream->cut = true;
    }
    SetFilePointerEx(stream->kept, start, NULL, FILE_END);
    write_all(stream->kept, piece, count);
    LeaveCriticalSection(&tail_lock);
}

static void keep(struct stream *stream, const char *piece, size_t count) {
    size_t room = MAX_KEPT - stream->stored, most = count < room ? count : room;
    stream->cut |= most < count;
    if (most && write_all(stream->kept, piece, most))
        stream->stored += most;
}

/* False where whoever listened has left: the program is to feel it too. */
static bool take(struct stream *stream, const char *piece, size_t count) {
    if (is_open(stream->kept))
        (stream->tail ? keep_tail : keep)(stream, piece, count);
    return !stream->target || write_all(stream->target, piece, count);
}

/* Waits for what comes. The event of a read comes before that of a wish: so where it is a wish that wakes, all that was
 * written has been taken. */
static bool wait_for_piece(struct stream *stream, OVERLAPPED *state, DWORD *count) {
    HANDLE both[2] = {state->hEvent, stream->wake};
    while (stream->wake && WaitForMultipleObjects(2, both, FALSE, INFINITE) == WAIT_OBJECT_0 + 1) {
        ResetEvent(stream->wake);
        if (WaitForSingleObject(state->hEvent, 0) == WAIT_OBJECT_0)
            SetEvent(stream->wake); /* not yet: this first */
        else if (stream->leaving)
            CancelIoEx(stream->source, state);
        else
            SetEvent(stream->settled);
        if (stream->leaving || WaitForSingleObject(state->hEvent, 0) == WAIT_OBJECT_0)
            break;
    }
    return GetOverlappedResult(stream->source, state, count, TRUE);
}

static DWORD WINAPI relay(void *given) {
    struct stream *stream = given;
    OVERLAPPED state = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
    char *piece = malloc(PIECE);
    for (DWORD count = 0; piece && state.hEvent; count = 0) {
        bool begun = ReadFile(stream->source, piece, PIECE, NULL, &state) || GetLastError() == ERROR_IO_PENDING;
        bool came = begun && wait_for_piece(stream, &state, &count);
        if (!came && GetLastError() == ERROR_OPERATION_ABORTED && stream->leaving)
            break;
        if (!came || !take(stream, piece, count)) {
            close_one(&stream->source);
            if (stream->fetched)
                close_one(&stream->target);
            break;
        }
    }
    close_one(&state.hEvent);
    free(piece);
    SetEvent(stream->settled);
    return 0;
}

/* Decides what the program writes to. `target`: where it would have written; NULL or invalid: nowhere. */
SHARED bool open_stream(struct stream *stream, HANDLE target, const char *record, const char *name, bool tail) {
    char path[PATH_ROOM + 128];
    bool fetched = stream->fetched;
    memset(stream, 0, sizeof *stream);
    stream->fetched = fetched;
    stream->tail = tail;
    stream->target = is_open(target) ? target : NULL;
    snprintf(stream->name, sizeof stream->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", record, name);
    stream->kept = opened(path, GENERIC_READ | GENERIC_WRITE, tail ? OPEN_ALWAYS : CREATE_ALWAYS);
    if (!is_open(stream->kept) || !open_pipe(stream)) {
        close_one(&stream->kept);
        return false;
    }
    stream->wake = CreateEventW(NULL, TRUE, FALSE, NULL);
    stream->settled = CreateEventW(NULL, TRUE, FALSE, NULL);
    stream->thread = CreateThread(NULL, 0, relay, stream, 0, NULL);
    if (!stream->thread) { /* nobody would read it: the program keeps what it has */
        close_one(&stream->given);
        close_one(&stream->source);
    }
    return stream->thread != NULL;
}

/* Asks it to pass on all that is there; `settled` says when. */
SHARED void ask_to_settle(struct stream *stream) {
    if (!stream->thread)
        return;
    ResetEvent(stream->settled);
    SetEvent(stream->wake);
    if (WaitForSingleObject(stream->thread, 0) == WAIT_OBJECT_0)
        SetEvent(stream->settled);
}

/* Nothing more can come. */
SHARED bool has_ended(const struct stream *stream) {
    return !stream->thread || WaitForSingleObject(stream->thread, 0) == WAIT_OBJECT_0;
}

SHARED bool has_settled(const struct stream *stream) {
    return has_ended(stream) || WaitForSingleObject(stream->settled, 0) == WAIT_OBJECT_0;
}

SHARED void settle(struct stream *stream) {
    if (!stream->thread)
        return;
    HANDLE either[2] = {stream->thread, stream->settled};
    ask_to_settle(stream);
    WaitForMultipleObjects(2, either, FALSE, INFINITE);
}

/* What the program left running may write for ever. Somebody must go on reading, and passing on: a process of its own
 * that gets these two handles and no others. */
static void leave_reader(struct stream *stream) {
    wchar_t self[PATH_ROOM], line[PATH_ROOM + 96];
    HANDLE handles[2] = {stream->source, stream->target};
    SIZE_T room = 0;
    STARTUPINFOEXW start = {.StartupInfo.cb = sizeof start};
    PROCESS_INFORMATION made;
    if (!GetModuleFileNameW(NULL, self, PATH_ROOM))
        return;
    for (int index = 0; index < 2; index++)
        if (handles[index])
            SetHandleInformation(handles[index], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
    InitializeProcThreadAttributeList(NULL, 1, 0, &room);
    start.lpAttributeList = malloc(room);
    if (!start.lpAttributeList || !InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &room))
        return;
    UpdateProcThreadAttribute(start.lpAttributeList, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles,
                              (handles[1] ? 2 : 1) * sizeof *handles, NULL, NULL);
    swprintf(line, PATH_ROOM + 96, L"\"%ls\" " RELAY_WORD L" %llu %llu", self, (unsigned long long)(uintptr_t)handles[0],
             (unsigned long long)(uintptr_t)handles[1]);
    if (CreateProcessW(self, line, NULL, NULL, TRUE, EXTENDED_STARTUPINFO_PRESENT | DETACHED_PROCESS, NULL, NULL,
                       &start.StartupInfo, &made)) {
        CloseHandle(made.hProcess);
        CloseHandle(made.hThread);
    }
    DeleteProcThreadAttributeList(start.lpAttributeList);
    free(start.lpAttributeList);
}

/* Where a process of its own reads on: what `leave_reader` started. */
SHARED int read_on(const wchar_t *words) {
    wchar_t *rest;
    struct stream stream = {.source = (HANDLE)(uintptr_t)_wcstoui64(words, &rest, 10)};
    stream.target = (HANDLE)(uintptr_t)_wcstoui64(rest, NULL, 10);
    relay(&stream);
    return 0;
}

/* The program has ended, and its end of the pipe is closed; others may hold it open for ever. */
SHARED void finish_stream(struct stream *stream, const char *record) {
    LARGE_INTEGER size = {0};
    bool empty = is_open(stream->kept) && GetFileSizeEx(stream->kept, &size) && size.QuadPart == 0;
    if (stream->thread) {
        InterlockedExchange(&stream->leaving, 1);
        SetEvent(stream->wake);
        WaitForSingleObject(stream->thread, INFINITE);
        if (stream->source)
            leave_reader(stream);
    }
    close_one(&stream->source);
    if (stream->fetched)
        close_one(&stream->target);
    close_one(&stream->kept);
    close_one(&stream->thread);
    close_one(&stream->wake);
    close_one(&stream->settled);
    if (empty && stream->name[0]) {
        char path[PATH_ROOM + 128];
        snprintf(path, sizeof path, "%s/%s", record, stream->name);
        wchar_t *name = wide_path(path);
        if (name)
            DeleteFileW(name);
        free(name);
    }
}

#endif
