/* What the kernel would say to a program, as far as its first bytes tell. */
#ifndef CUWHEEL_KERNEL_H
#define CUWHEEL_KERNEL_H

#include <elf.h>

#include "text.h"

static bool interpreter_exists(const char *start, size_t size) {
    char path[256];
    size_t at = 2, length = 0;
    while (at < size && (start[at] == ' ' || start[at] == '\t'))
        at++;
    while (at + length < size && length < sizeof path - 1 && !strchr(" \t\r\n", start[at + length]))
        length++;
    memcpy(path, start + at, length);
    path[length] = 0;
    return length > 0 && access(path, X_OK) == 0;
}

static bool loader_exists(const char *start, size_t size) {
    if (size < sizeof(Elf64_Ehdr) || start[EI_CLASS] != ELFCLASS64)
        return true;
    Elf64_Ehdr header;
    memcpy(&header, start, sizeof header);
    for (unsigned index = 0; index < header.e_phnum; index++) {
        Elf64_Phdr part;
        size_t at = header.e_phoff + index * sizeof part;
        if (at + sizeof part > size)
            break;
        memcpy(&part, start + at, sizeof part);
        if (part.p_type == PT_INTERP && part.p_offset < size && part.p_filesz <= size - part.p_offset &&
            memchr(start + part.p_offset, 0, part.p_filesz))
            return access(start + part.p_offset, X_OK) == 0;
    }
    return true;
}

/* Whether the kernel would run it, as far as its first bytes tell: if not, its caller is to get the kernel's answer. */
static bool can_run(const char *path) {
    char start[2048];
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode) || access(path, X_OK) != 0)
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == EACCES; /* it may be run, not read */
    ssize_t size = read(file, start, sizeof start);
    close(file);
    if (size >= 2 && memcmp(start, "#!", 2) == 0)
        return interpreter_exists(start, (size_t)size);
    if (size < 20 || memcmp(start, ELFMAG, SELFMAG) != 0)
        return false;
    Elf64_Half ours, theirs;
    char own[20];
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t count = self < 0 ? 0 : read(self, own, sizeof own);
    if (self >= 0)
        close(self);
    memcpy(&theirs, start + 18, sizeof theirs);
    memcpy(&ours, own + 18, sizeof ours);
    /* A machine may run foreign programs (32-bit ones, or by an emulator): then only the kernel knows. */
    return (count < (ssize_t)sizeof own || ours == theirs) && loader_exists(start, (size_t)size);
}

static bool is_elf(const char *path) {
    char start[SELFMAG] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool found = file >= 0 && read(file, start, sizeof start) == SELFMAG && memcmp(start, ELFMAG, SELFMAG) == 0;
    if (file >= 0)
        close(file);
    return found;
}

#endif
