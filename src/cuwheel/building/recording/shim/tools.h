/* Which programs are compilers and linkers, by their names. */
#ifndef CUWHEEL_TOOLS_H
#define CUWHEEL_TOOLS_H

#include "text.h"

#define LONGEST_TOOL 128
#define NAME_ROOM (LONGEST_TOOL + 8)

struct tool {
    const char *name, *kind;
};

static const struct tool TOOLS[] = {
    {"nvcc", "nvcc"},         {"gcc", "compiler"},      {"g++", "compiler"},    {"cc", "compiler"},
    {"c++", "compiler"},      {"clang", "compiler"},    {"clang++", "compiler"}, {"c89", "compiler"},
    {"c99", "compiler"},      {"nvc", "compiler"},      {"nvc++", "compiler"},  {"icx", "compiler"},
    {"icpx", "compiler"},     {"gfortran", "compiler"}, {"cicc", "compiler"},   {"cudafe++", "compiler"},
    {"ptxas", "compiler"},    {"fatbinary", "linker"},  {"nvlink", "linker"},   {"ld", "linker"},
    {"ld.bfd", "linker"},     {"ld.gold", "linker"},    {"ld.lld", "linker"},   {"ld.mold", "linker"},
    {"lld", "linker"},        {"mold", "linker"},       {"collect2", "linker"}, {"ar", "linker"},
    {"gcc-ar", "linker"},     {"llvm-ar", "linker"},    {"ccache", "cache"},    {"sccache", "cache"},
};

#ifdef _WIN32
/* Of programs for Windows alone: elsewhere a `link` is another thing. */
static const struct tool WINDOWS_TOOLS[] = {
    {"cl", "compiler"}, {"clang-cl", "compiler"}, {"link", "linker"}, {"lib", "linker"}, {"lld-link", "linker"},
};
#endif

SHARED const struct tool *tool_named(const char *name, size_t length) {
    for (size_t index = 0; index < sizeof TOOLS / sizeof *TOOLS; index++)
        if (strlen(TOOLS[index].name) == length && memcmp(TOOLS[index].name, name, length) == 0)
            return &TOOLS[index];
#ifdef _WIN32
    for (size_t index = 0; index < sizeof WINDOWS_TOOLS / sizeof *WINDOWS_TOOLS; index++)
        if (strlen(WINDOWS_TOOLS[index].name) == length && memcmp(WINDOWS_TOOLS[index].name, name, length) == 0)
            return &WINDOWS_TOOLS[index];
#endif
    return NULL;
}

/* `g++`, `g++-12`, `x86_64-linux-gnu-g++-12`: a version behind it, the machine it makes code for before it. */
SHARED const struct tool *tool_of(const char *path) {
    char room[NAME_ROOM];
    size_t length;
    const char *name = tool_name(path, room, &length);
    if (length > LONGEST_TOOL)
        return NULL;
    const struct tool *found = tool_named(name, length);
    if (found)
        return found;
    size_t end = length;
    while (end > 0 && ((name[end - 1] >= '0' && name[end - 1] <= '9') || name[end - 1] == '.'))
        end--;
    if (end < length && end > 1 && name[end - 1] == '-')
        length = end - 1;
    size_t start = length;
    while (start > 0 && name[start - 1] != '-')
        start--;
    bool triple = start > 1 && memchr(name, '-', start - 1) != NULL;
    return tool_named(name + (triple ? start : 0), length - (triple ? start : 0));
}

/* A compiler cache is of interest where it runs a compiler: `sccache --show-stats` and `sccache rustc` are not. */
SHARED bool worth_recording(const struct tool *tool, char *const argv[]) {
    if (!tool)
        return false;
    if (strcmp(tool->kind, "cache") != 0)
        return true;
    const struct tool *inner = argv[0] && argv[1] ? tool_of(argv[1]) : NULL;
    return inner && strcmp(inner->kind, "cache") != 0;
}

#endif
