/* What ../shim/system.h does on Linux. All text is UTF-8 inside; Windows' own calls take it in UTF-16. */
#ifndef CUWHEEL_WINDOWS_SYSTEM_H
#define CUWHEEL_WINDOWS_SYSTEM_H

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdlib.h>
#undef environ /* a macro there, a name of ours here */

#include "../shim/text.h"

#define PATH_ROOM 32768
#define LONG_PATH 240 /* from here on a path needs its \\?\ */

/* The process that lines are about: this one, or one that is watched. */
static struct {
    DWORD id;
    const char *folder;
    const struct text *parent_command;
} subject;

SHARED void *larger_room(void *at, size_t had, size_t room) {
    (void)had;
    return realloc(at, room);
}

SHARED void release_room(void *at, size_t room) {
    (void)room;
    free(at);
}

SHARED char *narrow(const wchar_t *text, size_t count) {
    int size = count ? WideCharToMultiByte(CP_UTF8, 0, text, (int)count, NULL, 0, NULL, NULL) : 0;
    char *made = malloc((size_t)size + 1);
    if (made) {
        WideCharToMultiByte(CP_UTF8, 0, text, (int)count, made, size, NULL, NULL);
        made[size] = 0;
    }
    return made;
}

SHARED wchar_t *wide(const char *text) {
    int size = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    wchar_t *made = malloc(((size_t)size + 1) * sizeof *made);
    if (made && !MultiByteToWideChar(CP_UTF8, 0, text, -1, made, size))
        made[0] = 0;
    return made;
}

SHARED bool is_absolute(const char *path) {
    bool slashes = (path[0] == '\\' || path[0] == '/') && (path[1] == '\\' || path[1] == '/');
    return slashes || (path[0] && path[1] == ':' && (path[2] == '\\' || path[2] == '/'));
}

SHARED const char *last_part(const char *path) {
    const char *last = path;
    for (const char *at = path; *at; at++)
        if (*at == '/' || *at == '\\' || (*at == ':' && at == path + 1))
            last = at + 1;
    return last;
}

/* For Windows' calls: from the folder of the process that it is a name for, and however long. */
SHARED wchar_t *wide_path(const char *path) {
    char *whole = NULL;
    if (!is_absolute(path) && path[0] != '\\' && path[0] != '/' && subject.folder) {
        size_t room = strlen(subject.folder) + strlen(path) + 2;
        whole = malloc(room);
        if (whole)
            snprintf(whole, room, "%s\\%s", subject.folder, path);
    }
    wchar_t *given = wide(whole ? whole : path), *longer = NULL;
    free(whole);
    size_t length = given ? wcslen(given) : 0;
    if (length < LONG_PATH || wcsncmp(given, L"\\\\?\\", 4) == 0)
        return given;
    for (size_t at = 0; at < length; at++)
        if (given[at] == '/')
            given[at] = '\\';
    bool network = given[0] == '\\' && given[1] == '\\', drive = given[1] == ':';
    if ((network || drive) && (longer = malloc((length + 16) * sizeof *longer)))
        wcscat(wcscpy(longer, network ? L"\\\\?\\UNC" : L"\\\\?\\"), given + (network ? 1 : 0));
    if (longer)
        free(given);
    return longer ? longer : given;
}

SHARED HANDLE opened(const char *path, DWORD access, DWORD how) {
    wchar_t *name = wide_path(path);
    DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    HANDLE file = name ? CreateFileW(name, access, share, NULL, how, FILE_ATTRIBUTE_NORMAL, NULL) : INVALID_HANDLE_VALUE;
    free(name);
    return file;
}

/* `\\\\.\\pipe\\x`: opening it alone would take it from the one that it is for. */
SHARED bool is_device(const char *path) {
    return strlen(path) > 3 && strchr("\\/", path[0]) && strchr("\\/", path[1]) && path[2] == '.' && strchr("\\/", path[3]);
}

SHARED bool is_there(const char *path) {
    wchar_t *name = is_device(path) ? NULL : wide_path(path);
    bool found = name && GetFileAttributesW(name) != INVALID_FILE_ATTRIBUTES;
    free(name);
    return found;
}

/* All of a file, up to a limit, ended by a zero byte that is not counted. */
SHARED bool read_file(const char *path, size_t limit, struct text *into) {
    const DWORD piece = 8192;
    HANDLE file = is_device(path) ? INVALID_HANDLE_VALUE : opened(path, GENERIC_READ, OPEN_EXISTING);
    if (file == INVALID_HANDLE_VALUE)
        return false;
    DWORD count = 0;
    bool fine = GetFileType(file) == FILE_TYPE_DISK;
    while (fine && into->size < limit && (fine = reserve(into, piece))) {
        fine = ReadFile(file, into->at + into->size, piece, &count, NULL);
        if (!fine || count == 0)
            break;
        into->size += count;
    }
    CloseHandle(file);
    if (!fine || into->lost)
        return false;
    put(into, "", 1);
    into->size -= 1;
    return !into->lost;
}

SHARED bool write_all(HANDLE file, const char *bytes, size_t count) {
    while (count > 0) {
        DWORD done = 0, most = count > (1u << 20) ? 1u << 20 : (DWORD)count;
        BOOL fine = WriteFile(file, bytes, most, &done, NULL);
        if (!fine && GetLastError() == ERROR_INVALID_PARAMETER) { /* a pipe that its owner made for overlapped writing */
            OVERLAPPED state = {.hEvent = CreateEventW(NULL, TRUE, FALSE, NULL)};
            fine = WriteFile(file, bytes, most, NULL, &state) || GetLastError() == ERROR_IO_PENDING;
            fine = fine && GetOverlappedResult(file, &state, &done, TRUE);
            CloseHandle(state.hEvent);
        }
        if (!fine)
            return false;
        bytes += done;
        count -= done;
    }
    return true;
}

SHARED bool write_file(const char *path, const char *bytes, size_t count) {
    HANDLE file = opened(path, GENERIC_WRITE, CREATE_ALWAYS);
    bool written = file != INVALID_HANDLE_VALUE && write_all(file, bytes, count);
    if (file != INVALID_HANDLE_VALUE)
        CloseHandle(file);
    return written;
}

/* Windows puts what is written with this right alone at the end, as one: lines of others cannot get into it. */
SHARED bool append_to(const char *path, const struct text *line, bool lasting) {
    HANDLE file = opened(path, FILE_APPEND_DATA | SYNCHRONIZE, OPEN_ALWAYS);
    DWORD done = 0;
    if (file == INVALID_HANDLE_VALUE)
        return false;
    bool written = WriteFile(file, line->at, (DWORD)line->size, &done, NULL) && done == line->size;
    if (lasting)
        FlushFileBuffers(file);
    CloseHandle(file);
    return written;
}

/* Visual Studio and MSBuild write UTF-16 with its mark. */
SHARED const char *decoded(struct text *text) {
    const unsigned char *bytes = (const unsigned char *)text->at;
    bool little = text->size >= 2 && bytes[0] == 0xFF && bytes[1] == 0xFE;
    if (!little)
        return NULL;
    size_t count = (text->size - 2) / 2;
    wchar_t *units = malloc((count + 1) * sizeof *units);
    if (!units)
        return NULL;
    memcpy(units, bytes + 2, count * 2);
    char *made = narrow(units, count);
    free(units);
    if (!made)
        return NULL;
    text->size = 0;
    put(text, made, strlen(made) + 1);
    text->size -= 1;
    free(made);
    return "utf-16";
}

/* `CL.EXE` is `cl`. */
SHARED const char *tool_name(const char *path, char *room, size_t *length) {
    const char *name = last_part(path);
    size_t size = strlen(name);
    if (size > 4 && _stricmp(name + size - 4, ".exe") == 0)
        size -= 4;
    *length = size;
    for (size_t at = 0; at < size && size <= 128; at++)
        room[at] = (char)(name[at] >= 'A' && name[at] <= 'Z' ? name[at] + 32 : name[at]);
    return room;
}

SHARED bool same_name(const char *one, const char *other, size_t count) { return _strnicmp(one, other, count) == 0; }

/* As Python's time.perf_counter_ns. */
SHARED int64_t now(void) {
    LARGE_INTEGER ticks, rate;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&rate);
    int64_t whole = ticks.QuadPart / rate.QuadPart, rest = ticks.QuadPart % rate.QuadPart;
    return whole * 1000000000 + rest * 1000000000 / rate.QuadPart;
}

SHARED int process_id(void) { return (int)(subject.id ? subject.id : GetCurrentProcessId()); }

SHARED void put_folder(struct text *into) {
    if (subject.folder)
        put_text(into, subject.folder);
}

SHARED void put_parent_command(struct text *into, size_t limit) {
    const struct text *found = subject.parent_command;
    if (found)
        put(into, found->at, found->size < limit ? found->size : limit);
}

#endif
