/* Text that grows, and JSON of any bytes. No malloc: parts of this run in a child of vfork, inside programs of others. */
#ifndef CUWHEEL_TEXT_H
#define CUWHEEL_TEXT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED static __attribute__((unused))

struct text {
    char *at;
    size_t size, room;
    bool lost; /* there was no memory: what is here is not whole */
};

/* Room for so many more bytes, which the caller writes at the end; false where there is no memory. */
SHARED bool reserve(struct text *text, size_t count) {
    if (text->lost)
        return false;
    if (text->room - text->size < count) {
        size_t room = text->room ? text->room : 1 << 16;
        while (room - text->size < count)
            room *= 2;
        void *more = text->at ? mremap(text->at, text->room, room, MREMAP_MAYMOVE)
                              : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) {
            text->lost = true;
            return false;
        }
        text->at = more;
        text->room = room;
    }
    return true;
}

SHARED void put(struct text *text, const void *bytes, size_t count) {
    if (count == 0 || !reserve(text, count))
        return;
    memcpy(text->at + text->size, bytes, count);
    text->size += count;
}

SHARED void put_text(struct text *text, const char *string) { put(text, string, strlen(string)); }

SHARED void put_number(struct text *text, int64_t number) {
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        digits[--at] = '-';
    put(text, digits + at, sizeof digits - at);
}

SHARED void forget(struct text *text) {
    if (text->at)
        munmap(text->at, text->room);
    memset(text, 0, sizeof *text);
}

/* The length of the valid UTF-8 character that begins here; 0 where none does. */
SHARED size_t character(const unsigned char *at, size_t left) {
    unsigned char first = at[0];
    if (first < 0x80)
        return 1;
    size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || left < length)
        return 0;
    for (size_t index = 1; index < length; index++)
        if ((at[index] & 0xC0) != 0x80)
            return 0;
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) || (first == 0xF0 && at[1] < 0x90) ||
        (first == 0xF4 && at[1] > 0x8F))
        return 0;
    return length;
}

/* A JSON string. A byte that is no UTF-8 becomes the lone surrogate that Python's os.fsencode turns back into it. */
SHARED void put_json(struct text *text, const char *bytes, size_t count) {
    static const char hex[] = "0123456789abcdef";
    put(text, "\"", 1);
    for (size_t at = 0; at < count;) {
        size_t plain = at;
        while (plain < count) {
            unsigned char byte = (unsigned char)bytes[plain];
            size_t length = character((const unsigned char *)bytes + plain, count - plain);
            if (length == 0 || byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F)
                break;
            plain += length;
        }
        put(text, bytes + at, plain - at);
        if ((at = plain) < count) {
            unsigned char byte = (unsigned char)bytes[at++];
            char escape[6] = {'\\', 'u', byte < 0x80 ? '0' : 'd', byte < 0x80 ? '0' : 'c', hex[byte >> 4], hex[byte & 15]};
            put(text, escape, sizeof escape);
        }
    }
    put(text, "\"", 1);
}

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

SHARED bool starts(const char *string, const char *with) { return strncmp(string, with, strlen(with)) == 0; }

SHARED bool ends(const char *string, size_t length, const char *with) {
    size_t tail = strlen(with);
    return length >= tail && memcmp(string + length - tail, with, tail) == 0;
}

#endif
