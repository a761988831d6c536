/* A Windows library with fat binaries and wrappers and no C library, for a linker of another processor.
   The test writes the containers, and says OWN for code that finds one by itself, TAKEN for code that takes the
   address of another one. */
#define PLACE(name, file)                                                                                              \
    __asm__(".section .nv_fatb,\"dr\"\n.balign 8\n.globl " #name "\n" #name ":\n.incbin \"" file "\"\n.text\n");        \
    extern const unsigned char name[] __attribute__((visibility("hidden"))); /* not by a pointer of the linker's */
#define WRAP(name)                                                                                                     \
    volatile struct wrapper wrapper_##name __attribute__((section(".nvFatBi"), aligned(8), used)) = {0x466243b1, 1,     \
                                                                                                     name, 0};

struct wrapper {
    unsigned magic, version;
    const unsigned char *container;
    const void *name;
};

PLACE(first, "0.fatbin")
PLACE(own, "1.fatbin")
PLACE(second, "2.fatbin")
WRAP(first)
#ifndef OWN
WRAP(own)
#endif
WRAP(second)
volatile int behind[3000] __attribute__((section(".zeros"), used)) = {7}; /* its place follows from the device code's size */

__declspec(dllexport) const unsigned char *answer(int number) {
#ifdef TAKEN
    if (number == 2)
        return second;
#endif
#ifdef OWN
    if (number == 1)
        return own;
#endif
    behind[2500] += number;
    return wrapper_first.container + behind[number];
}

int DllMainCRTStartup(void *module, unsigned reason, void *reserved) { return module && (reason || !reserved); }
