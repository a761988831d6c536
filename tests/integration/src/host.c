/* What a host does beside its device code: exported names, tables of pointers, constants that are zeros, objects of
   large alignment, notes that code reads, constructors, thread-local and zeroed data. The test says which. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int answer = 42;
EXPORT const uint8_t blank[300] = {0};
#ifdef ALIGNED
EXPORT int wide[16] __attribute__((aligned(ALIGNED))) = {5};
#else
EXPORT int wide[16] = {5};
#endif
EXPORT __thread int own_thread = 9;
EXPORT uint8_t zeroed[70000];

#ifdef NOTE /* a note whose reader is the code beside it */
static const struct {
    uint32_t name, size, type;
    char owner[8], text[16];
} note __attribute__((section(".note.mine"), used, aligned(4))) = {5, 16, 1, "MINE", "said by a note"};
static const char *volatile noted = note.text;
#endif

EXPORT int twice(int value) { return 2 * value; }
EXPORT int thrice(int value) { return 3 * value; }
static int (*const volatile functions[])(int) = {twice, thrice};
static const char *const volatile texts[] = {"one", "two", (const char *)&answer};
static int built;
__attribute__((constructor)) static void build(void) { built = 11; }

EXPORT const char *host(void) {
    static char out[500];
    unsigned sum = 0;
    for (unsigned i = 0; i < sizeof blank; i++)
        sum += ((volatile const uint8_t *)blank)[i];
    for (unsigned i = 0; i < sizeof zeroed; i++)
        sum += ((volatile uint8_t *)zeroed)[i];
    int at = sprintf(out, "%d %u %d %d %d %d %d %s %d", answer, sum, wide[0], own_thread, built, functions[0](4),
                     functions[1](4), texts[1], *(const int *)texts[2]);
#ifdef ALIGNED
    at += sprintf(out + at, " %d", (int)((uintptr_t)wide % ALIGNED));
#endif
#ifdef NOTE
    at += sprintf(out + at, " %s %s", ((volatile const char *)note.text), noted);
#endif
    return out;
}
