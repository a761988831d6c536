/* A program started with streams of ours in place of two of its caller's, and all other handles that it would have had. */
#ifndef CUWHEEL_SPAWN_H
#define CUWHEEL_SPAWN_H

#include "relay.h"

#define FD_OPEN 0x01 /* flags of a C runtime's descriptors, as handed down in `lpReserved2` */
#define FD_PIPE 0x08
#define FD_DEVICE 0x40

/* A C runtime hands its descriptors down as a count, a byte of flags for each, a handle for each; they go before the
 * three streams. Writes our streams among them; whether there was anything to change. */
static bool patch_descriptors(unsigned char *block, size_t size, HANDLE out, HANDLE err) {
    int32_t count = 0;
    bool changed = false;
    HANDLE given[3] = {NULL, out, err};
    if (size >= sizeof count)
        memcpy(&count, block, sizeof count);
    if (count < 2 || (uint64_t)size < sizeof count + (uint64_t)count * (1 + sizeof(HANDLE)))
        return false;
    for (int32_t index = 1; index < 3 && index < count; index++) {
        unsigned char *flags = block + sizeof count + index;
        if (!given[index] || !(*flags & FD_OPEN))
            continue;
        *flags = (unsigned char)((*flags & ~FD_DEVICE) | FD_PIPE);
        memcpy(block + sizeof count + count + (size_t)index * sizeof(HANDLE), &given[index], sizeof(HANDLE));
        changed = true;
    }
    return changed;
}

/* Mine, which the program is to have too. */
static HANDLE inheritable(HANDLE handle) {
    HANDLE copy = NULL, self = GetCurrentProcess();
    DWORD flags = 0;
    if (!is_open(handle) || (GetHandleInformation(handle, &flags) && (flags & HANDLE_FLAG_INHERIT)))
        return handle;
    return DuplicateHandle(self, handle, self, &copy, 0, TRUE, DUPLICATE_SAME_ACCESS) ? copy : handle;
}

/* Ends with us, also where we are killed; what it starts itself does not: some of that serves others (mspdbsrv). */
static void tie(HANDLE process) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    HANDLE job = CreateJobObjectW(NULL, NULL);
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    if (job && SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits))
        AssignProcessToJobObject(job, process); /* the handle stays open as long as we live */
}

struct spawned {
    HANDLE process;
    DWORD id;
};

/* `variables`: a block, or NULL for ours. `out`, `err`: NULL for ours. False: GetLastError says why not. */
static bool spawn(struct spawned *made, const wchar_t *program, wchar_t *line, wchar_t *variables, HANDLE out, HANDLE err,
                  DWORD flags) {
    STARTUPINFOW own = {.cb = sizeof own}, start = {.cb = sizeof start};
    PROCESS_INFORMATION info;
    GetStartupInfoW(&own);
    start.dwFlags = (own.dwFlags & (STARTF_USESHOWWINDOW | STARTF_FORCEOFFFEEDBACK)) | STARTF_USESTDHANDLES;
    start.wShowWindow = own.wShowWindow;
    start.hStdInput = inheritable(GetStdHandle(STD_INPUT_HANDLE));
    start.hStdOutput = out ? out : inheritable(GetStdHandle(STD_OUTPUT_HANDLE));
    start.hStdError = err ? err : inheritable(GetStdHandle(STD_ERROR_HANDLE));
    if (own.cbReserved2 && own.lpReserved2 && (start.lpReserved2 = malloc(own.cbReserved2))) {
        start.cbReserved2 = own.cbReserved2;
        memcpy(start.lpReserved2, own.lpReserved2, own.cbReserved2);
        patch_descriptors(start.lpReserved2, start.cbReserved2, out, err);
    }
    BOOL begun = CreateProcessW(program, line, NULL, NULL, TRUE, flags | CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT,
                                variables, NULL, &start, &info);
    DWORD problem = GetLastError();
    free(start.lpReserved2);
    if (!begun) {
        SetLastError(problem);
        return false;
    }
    tie(info.hProcess);
    ResumeThread(info.hThread);
    CloseHandle(info.hThread);
    *made = (struct spawned){.process = info.hProcess, .id = info.dwProcessId};
    return true;
}

/* Ctrl-C reaches the program too: it decides, and we stay to tell of its end. */
static BOOL WINAPI stay(DWORD event) {
    (void)event;
    return TRUE;
}

static int errno_of(DWORD problem) {
    switch (problem) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
        return 2;
    case ERROR_BAD_EXE_FORMAT:
        return 8;
    case ERROR_FILENAME_EXCED_RANGE:
        return 7;
    default:
        return 13;
    }
}

static int complain(const char *program, DWORD problem) {
    char text[512] = "cannot be started", line[1200];
    FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, problem, 0, text, sizeof text, NULL);
    int count = snprintf(line, sizeof line, "%.600s: %s\n", program, text);
    HANDLE err = GetStdHandle(STD_ERROR_HANDLE);
    if (is_open(err) && count > 0)
        write_all(err, line, (size_t)count < sizeof line ? (size_t)count : sizeof line - 1);
    return errno_of(problem) == 2 ? 127 : 126;
}

#endif
