/* A call of a compiler: its lines in the record, and the streams that it is given. */
#ifndef CUWHEEL_WINDOWS_CALL_H
#define CUWHEEL_WINDOWS_CALL_H

#include "line.h"
#include "process.h"
#include "relay.h"

struct call {
    struct call *next; /* of those that have ended and whose streams somebody may still hold */
    char id[64];
    const struct tool *tool;
    char *program; /* what was called */
    char **argv;   /* as the caller gave it, the program first */
    char **ran;    /* its words where we changed them, else NULL */
    char **told;   /* its variables, as the record has them */
    char *phases;  /* nvcc's own timing, below the record; else NULL */
    struct stream out, err;
    bool merged;   /* both go to one place, and their order counts */
};

#include "../shim/call_lines.h"

typedef BOOL WINAPI compare_handles(HANDLE, HANDLE);

/* Whether two handles lead to one place: pipes can be compared since Windows 10 alone. */
static bool same_place(HANDLE one, HANDLE other) {
    if (!is_open(one) || !is_open(other))
        return false;
    compare_handles *compare =
        (compare_handles *)(void *)GetProcAddress(GetModuleHandleW(L"kernelbase"), "CompareObjectHandles");
    BY_HANDLE_FILE_INFORMATION first, second;
    if (one == other || (compare && compare(one, other)))
        return true;
    return GetFileType(one) == FILE_TYPE_DISK && GetFileInformationByHandle(one, &first) &&
           GetFileInformationByHandle(other, &second) && first.dwVolumeSerialNumber == second.dwVolumeSerialNumber &&
           first.nFileIndexHigh == second.nFileIndexHigh && first.nFileIndexLow == second.nFileIndexLow;
}

/* Streams for what goes to these two. */
static void open_streams(struct call *call, const struct session *session, HANDLE out, HANDLE err) {
    char names[2][80];
    snprintf(names[0], sizeof names[0], "output/%s.out", call->id);
    snprintf(names[1], sizeof names[1], "output/%s.err", call->id);
    call->merged = call->merged || same_place(out, err);
    open_stream(&call->out, out, session->record, names[0], false);
    if (!call->merged)
        open_stream(&call->err, err, session->record, names[1], false);
}

struct memory_counters { /* psapi.h's, of which kernel32 has the function too */
    DWORD size, faults;
    SIZE_T peak, now, quotas[4], pagefile, peak_pagefile;
};

typedef BOOL WINAPI memory_function(HANDLE, struct memory_counters *, DWORD);

static uint64_t peak_memory(HANDLE process) {
    struct memory_counters found = {.size = sizeof found};
    memory_function *ask =
        (memory_function *)(void *)GetProcAddress(GetModuleHandleW(L"kernel32"), "K32GetProcessMemoryInfo");
    return ask && ask(process, &found, sizeof found) ? found.peak : 0;
}

/* The session that the variable names, and the variables of this process: what is told of them has names in capitals. */
static char *own_variable(const wchar_t *name) {
    DWORD size = GetEnvironmentVariableW(name, NULL, 0);
    wchar_t *value = size ? malloc(size * sizeof *value) : NULL;
    char *made = value && GetEnvironmentVariableW(name, value, size) ? narrow(value, wcslen(value)) : NULL;
    free(value);
    return made;
}

static bool own_session(struct session *session) {
    char *folder = own_variable(L"CUWHEEL_RECORD");
    bool found = load_session(session, folder);
    free(folder);
    return found;
}

/* What this process is in, and who started it. */
SHARED void look_at_self(void) {
    static struct started self, parent;
    static struct text command;
    if (!read_started(&self, GetCurrentProcess()))
        return;
    subject.folder = self.folder;
    HANDLE process = OpenProcess(PROCESS_QUERY_INFORMATION | PROCESS_VM_READ, FALSE, self.parent);
    if (process && read_started(&parent, process)) {
        put_text(&command, parent.command);
        subject.parent_command = &command;
    }
    close_one(&process);
}

#endif
