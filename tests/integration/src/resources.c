/* A library that finds device code by addresses of its own, and says what stands there once it is loaded.
   The test writes `places.s`: `starts`, `ends`, how many there are, and a table of pointers to be relocated. */
#include <stdint.h>
#include <stdio.h>

#define HIDDEN __attribute__((visibility("hidden")))
extern const uint8_t *const starts[] HIDDEN, *const ends[] HIDDEN;
extern const uint64_t count HIDDEN;

__attribute__((visibility("default"))) const char *report(void) {
    static char text[1 << 16];
    char *at = text;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t low = 1, high = 0; /* Adler-32 */
        for (const uint8_t *byte = starts[i]; byte < ends[i]; byte++) {
            low = (low + *byte) % 65521;
            high = (high + low) % 65521;
        }
        at += sprintf(at, "%08x\n", high << 16 | low);
    }
    return text;
}
