/* A library or program with fat binaries, wrappers and a runtime of its own that says what it was given.
   The test writes the containers, and says PROGRAM, NO_TABLE and SPREAD. */
#include <stdint.h>
#include <stdio.h>

struct wrapper {
    uint32_t magic, version;
    const uint8_t *container;
    const void *name;
};
struct container {
    uint32_t magic;
    uint16_t version, header;
    uint64_t size;
};

#ifdef _WIN32 /* names of sections are cut at eight letters */
#define HIDDEN
#define DEVICE ".nv_fatb"
#define RELOCATABLE "__nv_rel"
#define SEGMENT ".nvFatBi"
#define EXPORTED __declspec(dllexport)
#define PLACE(section, name, file)                                                                                     \
    __asm__(".section " section ",\"dr\"\n.balign 8\n.globl " #name "\n" #name ":\n.incbin \"" file "\"\n.text\n");      \
    extern const uint8_t name[];
#else
#define HIDDEN __attribute__((visibility("hidden")))
#define DEVICE ".nv_fatbin"
#define RELOCATABLE "__nv_relfatbin"
#define SEGMENT ".nvFatBinSegment"
#define EXPORTED __attribute__((visibility("default")))
#define PLACE(section, name, file)                                                                                     \
    __asm__(".pushsection " section ",\"a\"\n.balign 8\n.globl " #name "\n.hidden " #name "\n" #name ":\n.incbin \"" file \
            "\"\n.popsection\n");                                                                                      \
    extern const uint8_t name[] HIDDEN;
#endif
#define WRAP(number, version, name)                                                                                    \
    volatile struct wrapper wrapper_##number __attribute__((section(SEGMENT), aligned(8), used)) HIDDEN = {          \
        0x466243b1, version, name, 0};

PLACE(DEVICE, first, "0.fatbin")
PLACE(DEVICE, own, "1.fatbin") /* no wrapper: found by the code below */
PLACE(DEVICE, second, "2.fatbin")
#ifdef SPREAD /* further ones without a wrapper, far from one another */
PLACE(DEVICE, third, "2.fatbin")
PLACE(DEVICE, own_2, "1.fatbin")
PLACE(DEVICE, fourth, "0.fatbin")
PLACE(DEVICE, own_3, "1.fatbin")
PLACE(DEVICE, fifth, "2.fatbin")
WRAP(3, 1, third)
WRAP(4, 1, fourth)
WRAP(5, 1, fifth)
#endif
PLACE(RELOCATABLE, object, "3.fatbin")
WRAP(0, 1, first)
WRAP(1, 1, second)
WRAP(2, 2, object)

static const char *const words[] = {"relocated", "data"};
#ifdef NO_TABLE
#define TABLE(index) (index ? wrapper_0.container : wrapper_1.container)
#else
const uint8_t *volatile table[] HIDDEN = {second, first}; /* pointers that are no wrappers */
#define TABLE(index) table[index]
#endif
static _Thread_local int local = 7;
static int zeros[5000];

static uint32_t sum(const uint8_t *data, uint64_t size) {
    uint32_t hash = 2166136261u;
    for (uint64_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 16777619u;
    return hash;
}

static int tell(char *out, const uint8_t *data) {
    const struct container *found = (const struct container *)data;
    if (found->magic != 0xba55ed50)
        return sprintf(out, "no container\n");
    return sprintf(out, "%llu %08x\n", (unsigned long long)found->size, sum(data + found->header, found->size));
}

EXPORTED const char *report(void) {
    static char out[1000];
    int at = 0;
    const volatile struct wrapper *all[] = {&wrapper_0, &wrapper_1, &wrapper_2};
    for (int i = 0; i < 3; i++)
        at += tell(out + at, all[i]->container);
    at += tell(out + at, own);
    at += tell(out + at, TABLE(0));
    at += tell(out + at, TABLE(1));
    at += sprintf(out + at, "%s %s %d %d\n", words[0], words[1], local, zeros[4999]);
#ifdef SPREAD
    at += tell(out + at, own_2);
    at += tell(out + at, own_3);
    const volatile struct wrapper *more[] = {&wrapper_3, &wrapper_4, &wrapper_5};
    for (int i = 0; i < 3; i++)
        at += tell(out + at, more[i]->container);
#endif
    return out;
}

#ifdef PROGRAM
int main(void) {
    fputs(report(), stdout);
    return 0;
}
#endif
