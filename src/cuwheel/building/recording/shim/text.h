/* Text that grows, and JSON of any bytes. */
#ifndef CUWHEEL_TEXT_H
#define CUWHEEL_TEXT_H

#if !defined _GNU_SOURCE && !defined _WIN32
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SHARED static __attribute__((unused))

struct text {
    char *at;
    size_t size, room;
    bool lost; /* there was no memory: what is here is not whole */
};

/* What is different on Windows is in a file for each system, included below. */
SHARED void *larger_room(void *at, size_t had, size_t room); /* NULL where there is no memory */
SHARED void release_room(void *at, size_t room);

/* Room for so many more bytes, which the caller writes at the end; false where there is no memory. */
SHARED bool reserve(struct text *text, size_t count) {
    if (text->lost)
        return false;
    if (text->room - text->size < count) {
        size_t room = text->room ? text->room : 1 << 16;
        while (room - text->size < count)
            room *= 2;
        void *more = larger_room(text->at, text->room, room);
        if (!more) {
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
        release_room(text->at, text->room);
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

SHARED bool starts(const char *string, const char *with) { return strncmp(string, with, strlen(with)) == 0; }

SHARED bool ends(const char *string, size_t length, const char *with) {
    size_t tail = strlen(with);
    return length >= tail && memcmp(string + length - tail, with, tail) == 0;
}

#ifdef _WIN32
#include "../windows/system.h"
#else
#include "system.h"
#endif

#endif
