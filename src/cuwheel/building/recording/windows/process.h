/* What a process was started with, read from its own memory: its command line, folder, variables and streams. */
#ifndef CUWHEEL_PROCESS_H
#define CUWHEEL_PROCESS_H

#include "system.h"

/* Offsets in the structures of 64-bit Windows, which have not changed since Vista: winternl.h names a few of them. */
#define PEB_BEING_DEBUGGED 0x02
#define PEB_PARAMETERS 0x20
#define PARAMETERS_FLAGS 0x08
#define PARAMETERS_CONSOLE 0x10
#define PARAMETERS_STREAMS 0x20 /* input, output, error */
#define PARAMETERS_FOLDER 0x38
#define PARAMETERS_IMAGE 0x60
#define PARAMETERS_COMMAND 0x70
#define PARAMETERS_ENVIRONMENT 0x80
#define PARAMETERS_WINDOW_FLAGS 0xA4
#define PARAMETERS_RUNTIME 0xE0 /* descriptors that a C runtime hands down */
#define PARAMETERS_ENVIRONMENT_SIZE 0x3F0
#define NEW_CONSOLE (-2) /* in place of a console's handle: it gets one of its own, */
#define NO_WINDOW (-3)   /* or one without a window */
#define NORMALIZED 1 /* a flag: texts are at addresses; else they are offsets */
#define MAX_ENVIRONMENT (4u << 20)
#define MAX_RUNTIME 65535u

struct basic_information { /* of NtQueryInformationProcess */
    LONG_PTR status;
    uint64_t peb;
    ULONG_PTR affinity, priority, id, parent;
};

struct string {
    USHORT length, room;
    uint64_t at;
};

struct started {
    HANDLE process;
    uint64_t peb, parameters;
    bool offsets; /* texts are at offsets */
    DWORD parent, window_flags;
    int64_t console;
    HANDLE streams[3];
    struct string runtime;
    char *command, *folder, *image;
    wchar_t *wide_command;
    char **variables; /* their names in capitals, as Python has them */
};

typedef LONG NTAPI query_process(HANDLE, ULONG, void *, ULONG, ULONG *);

static bool peek(const struct started *one, uint64_t from, void *into, size_t count) {
    SIZE_T done = 0;
    return ReadProcessMemory(one->process, (void *)(uintptr_t)from, into, count, &done) && done == count;
}

SHARED bool poke(const struct started *one, uint64_t at, const void *bytes, size_t count) {
    SIZE_T done = 0;
    return WriteProcessMemory(one->process, (void *)(uintptr_t)at, bytes, count, &done) && done == count;
}

static bool find_parameters(struct started *one) {
    struct basic_information basic = {0};
    ULONG flags = 0;
    query_process *query = (query_process *)(void *)GetProcAddress(GetModuleHandleW(L"ntdll"), "NtQueryInformationProcess");
    if (!query || query(one->process, 0, &basic, sizeof basic, NULL) < 0)
        return false;
    one->peb = basic.peb;
    one->parent = (DWORD)basic.parent;
    if (!peek(one, one->peb + PEB_PARAMETERS, &one->parameters, 8) || !one->parameters ||
        !peek(one, one->parameters + PARAMETERS_FLAGS, &flags, sizeof flags))
        return false;
    one->offsets = !(flags & NORMALIZED);
    return true;
}

static bool find_string(const struct started *one, uint64_t at, struct string *found) {
    unsigned char raw[16];
    if (!peek(one, one->parameters + at, raw, sizeof raw))
        return false;
    memcpy(&found->length, raw, 2);
    memcpy(&found->room, raw + 2, 2);
    memcpy(&found->at, raw + 8, 8);
    if (one->offsets && found->at)
        found->at += one->parameters;
    return true;
}

static wchar_t *string_at(const struct started *one, uint64_t at) {
    struct string found = {0};
    if (!find_string(one, at, &found))
        return NULL;
    wchar_t *text = calloc((size_t)found.length / 2 + 1, sizeof *text);
    if (text && found.length && !peek(one, found.at, text, found.length)) {
        free(text);
        return NULL;
    }
    return text;
}

static char *narrow_at(const struct started *one, uint64_t at) {
    wchar_t *text = string_at(one, at);
    char *made = text ? narrow(text, wcslen(text)) : NULL;
    free(text);
    return made;
}

/* Variables as a list; without those of cmd's own (`=C:`). `capitals`: names as Python has them. */
static char **variable_list(const wchar_t *block, size_t units, bool capitals) {
    size_t count = 0, room = 1;
    for (size_t at = 0; at < units && block[at]; at += wcsnlen(block + at, units - at) + 1)
        room++;
    char **list = calloc(room, sizeof *list);
    for (size_t at = 0, length; list && at < units && block[at]; at += length + 1) {
        length = wcsnlen(block + at, units - at);
        if (block[at] == '=' || count + 1 >= room)
            continue;
        wchar_t *copy = malloc((length + 1) * sizeof *copy);
        if (!copy)
            break;
        memcpy(copy, block + at, length * sizeof *copy);
        copy[length] = 0;
        const wchar_t *equals = wcschr(copy, '=');
        if (capitals && equals)
            LCMapStringW(LOCALE_INVARIANT, LCMAP_UPPERCASE, copy, (int)(equals - copy), copy, (int)(equals - copy));
        list[count] = narrow(copy, length);
        free(copy);
        if (list[count])
            count++;
    }
    return list;
}

SHARED char **read_variables(const struct started *one) {
    uint64_t at = 0, size = 0;
    MEMORY_BASIC_INFORMATION region = {0};
    if (!peek(one, one->parameters + PARAMETERS_ENVIRONMENT, &at, 8) || !at)
        return NULL;
    if (one->offsets)
        at += one->parameters;
    /* Its size stands at the end of newer structures; the memory that it lies in ends somewhere anyway. */
    if (!peek(one, one->parameters + PARAMETERS_ENVIRONMENT_SIZE, &size, 8) || !size || size > MAX_ENVIRONMENT)
        size = MAX_ENVIRONMENT;
    if (VirtualQueryEx(one->process, (void *)(uintptr_t)at, &region, sizeof region)) {
        uint64_t rest = (uint64_t)(uintptr_t)region.BaseAddress + region.RegionSize - at;
        if (rest < size)
            size = rest;
    }
    wchar_t *block = calloc((size_t)size / 2 + 2, sizeof *block);
    char **list = block && peek(one, at, block, (size_t)size & ~(size_t)1) ? variable_list(block, (size_t)size / 2, true) : NULL;
    free(block);
    return list;
}

static void without_last_slash(char *folder) {
    size_t length = folder ? strlen(folder) : 0;
    if (length > 3 && (folder[length - 1] == '\\' || folder[length - 1] == '/'))
        folder[length - 1] = 0;
}

/* The process's own words for how it was started; false where it cannot be read. */
static bool read_started(struct started *one, HANDLE process) {
    memset(one, 0, sizeof *one);
    one->process = process;
    if (!find_parameters(one))
        return false;
    peek(one, one->parameters + PARAMETERS_STREAMS, one->streams, sizeof one->streams);
    peek(one, one->parameters + PARAMETERS_CONSOLE, &one->console, sizeof one->console);
    peek(one, one->parameters + PARAMETERS_WINDOW_FLAGS, &one->window_flags, sizeof one->window_flags);
    find_string(one, PARAMETERS_RUNTIME, &one->runtime);
    one->image = narrow_at(one, PARAMETERS_IMAGE);
    one->folder = narrow_at(one, PARAMETERS_FOLDER);
    without_last_slash(one->folder);
    one->wide_command = string_at(one, PARAMETERS_COMMAND);
    one->command = one->wide_command ? narrow(one->wide_command, wcslen(one->wide_command)) : NULL;
    return one->image && one->folder && one->command;
}

static void forget_list(char **list) {
    for (char **each = list; each && *each; each++)
        free(*each);
    free(list);
}

SHARED void forget_started(struct started *one) {
    free(one->command);
    free(one->wide_command);
    free(one->folder);
    free(one->image);
    forget_list(one->variables);
    one->command = one->folder = one->image = NULL;
    one->wide_command = NULL;
    one->variables = NULL;
}

#endif
