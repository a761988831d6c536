/* What nvcc is asked to do, and its architecture flags replaced by those of a plan. nvcc takes these spellings and no
 * others, with the value in the same word behind `=`, or in the next. */
#ifndef CUWHEEL_ARCHS_H
#define CUWHEEL_ARCHS_H

#include <stdlib.h>

#include "event.h"

static const char *const ARCH_OPTIONS[] = {"-arch",     "--gpu-architecture", "-code", "--gpu-code",
                                           "-gencode",  "--generate-code",    NULL};
/* Their value belongs to another program, or to a file: it is no option of nvcc. */
static const char *const TAKING[] = {"-Xcompiler",      "--compiler-options",  "-Xlinker",        "--linker-options",
                                     "-Xarchive",       "--archive-options",   "-Xptxas",         "--ptxas-options",
                                     "-Xnvlink",        "--nvlink-options",    "-Xcudafe",        "--cudafe-options",
                                     "-Xfatbinary",     "--fatbinary-options", "-Xnvvm",          "--nvvm-options",
                                     "-o",              "--output-file",       "-odir",           "--output-directory",
                                     "-D",              "-I",                  "-L",              "-l",
                                     "-include",        "-isystem",            "-MF",             "-MT",
                                     "-MQ",             "-x",                  "-ccbin",          "--compiler-bindir",
                                     NULL};
/* Asked to tell something, and to make nothing. */
static const char *const TELLING[] = {"--version",       "-V",           "--help",    "-h",       "--list-gpu-code",
                                      "-code-ls",        "--list-gpu-arch", "-arch-ls", NULL};
/* One architecture at a time, or none: a plan's list would be refused, or say nothing. */
static const char *const SINGLE[] = {"-ptx", "--ptx", "-cubin", "--cubin", "-optix-ir", "--optix-ir", "-E", "--preprocess",
                                     "-M",   "--generate-dependencies",    "-MM",       "--generate-nonsystem-dependencies",
                                     "-lib", "--lib",                      NULL};
/* With these `--time` is refused, ends in a crash (-E, seen with 13.0), or is somebody else's. */
static const char *const UNTIMED[] = {"-E",     "--preprocess", "-dryrun", "--dryrun", "-run",
                                      "--run",  "-time",        "--time",  NULL};

struct nvcc_call {
    bool telling, single, untimed, inputs;
};

SHARED bool option_in(const char *const *options, const char *word, size_t length) {
    size_t name = 0;
    while (name < length && word[name] != '=')
        name++;
    for (; *options; options++)
        if (strlen(*options) == name && memcmp(*options, word, name) == 0)
            return true;
    return false;
}

SHARED void look_at(struct nvcc_call *call, const char *word, size_t length) {
    call->telling |= option_in(TELLING, word, length);
    call->single |= option_in(SINGLE, word, length);
    call->untimed |= option_in(UNTIMED, word, length);
    call->inputs |= length > 0 && word[0] != '-';
}

/* The next word of a text of options, quotes and all; 0 at its end. */
SHARED size_t next_word(const char **at, const char *end) {
    while (*at < end && strchr(" \t\r\n", **at))
        ++*at;
    const char *stop = *at;
    char quote = 0;
    while (stop < end && (quote || !strchr(" \t\r\n", *stop))) {
        if (*stop == '\\' && stop + 1 < end)
            stop++;
        else if (quote ? *stop == quote : *stop == '"' || *stop == '\'')
            quote = quote ? 0 : *stop;
        stop++;
    }
    return (size_t)(stop - *at);
}

/* A text of options without those that choose architectures, put into `kept`; whether there were any. */
SHARED bool filter_text(const char *text, size_t size, struct text *kept, struct nvcc_call *call) {
    const char *at = text, *end = text + size;
    bool found = false, skip = false, value = false;
    for (size_t length; (length = next_word(&at, end)); at += length) {
        bool arch = !value && !skip && option_in(ARCH_OPTIONS, at, length);
        bool dropped = skip || arch;
        found |= arch;
        if (call && !dropped && !value)
            look_at(call, at, length);
        skip = arch && !memchr(at, '=', length);
        value = !value && !dropped && option_in(TAKING, at, length) && !memchr(at, '=', length);
        if (dropped || !kept)
            continue;
        if (kept->size)
            put(kept, " ", 1);
        put(kept, at, length);
    }
    return found;
}

/* The files that an options-file word names, looked at; with `kept`, their options without architectures put there. */
SHARED bool filter_files(const char *files, struct text *kept, struct nvcc_call *call) {
    bool found = false;
    while (*files) {
        char path[PATH_ROOM];
        size_t size = strcspn(files, ",");
        struct text inside = {0};
        if (size < sizeof path) {
            memcpy(path, files, size);
            path[size] = 0;
            if (read_file(path, MAX_RESPONSE, &inside) && (decoded(&inside), true))
                found |= filter_text(inside.at, inside.size, kept, call);
        }
        forget(&inside);
        files += size + (files[size] == ',');
    }
    return found;
}

/* What the words, the files they name and nvcc's own variables ask for. */
SHARED struct nvcc_call asked(char *const *words, char *const *variables) {
    struct nvcc_call call = {0};
    bool next;
    for (size_t index = 0; words[index]; index++) {
        const char *files = options_file(words, index, &next);
        if (files)
            filter_files(files, NULL, &call);
        else
            look_at(&call, words[index], strlen(words[index]));
        size_t length = strlen(words[index]);
        bool taking = option_in(TAKING, words[index], length) || option_in(ARCH_OPTIONS, words[index], length);
        if ((next || (taking && !strchr(words[index], '='))) && words[index + 1])
            index++;
    }
    static const char *const names[] = {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"};
    for (size_t index = 0; index < 2; index++) {
        const char *flags = variable_in(variables, names[index]);
        if (flags)
            filter_text(flags, strlen(flags), NULL, &call);
    }
    return call;
}

/* A copy of a file of options without architectures; NULL where it could not be written. */
SHARED char *filtered_file(const struct session *session, const char *id, size_t index, const struct text *kept) {
    char *path = malloc(PATH_ROOM + 128);
    if (!path)
        return NULL;
    snprintf(path, PATH_ROOM + 128, "%s/output/%s-%u.options", session->record, id, (unsigned)index);
    bool written = write_file(path, kept->at ? kept->at : "", kept->size);
    if (!written) {
        free(path);
        return NULL;
    }
    return path;
}

/* The words with the plan's architectures instead of the caller's. `words` has no program in it. */
SHARED char **with_archs(const struct session *session, const char *id, char **words) {
    size_t count = 0, room = 1;
    while (words[room - 1])
        room++;
    for (const char *arch = NULL; (arch = configured(session, "arch", arch));)
        room++;
    char **list = malloc(room * sizeof *list);
    bool next;
    if (!list)
        return words;
    for (size_t index = 0; words[index]; index++) {
        const char *word = words[index], *files = options_file(words, index, &next);
        struct text kept = {0};
        char *copy = files && filter_files(files, &kept, NULL) ? filtered_file(session, id, index, &kept) : NULL;
        forget(&kept);
        bool joined = strchr(word, '=') != NULL;
        if (option_in(ARCH_OPTIONS, word, strlen(word))) {
            index += !joined && words[index + 1];
            continue;
        }
        bool taking = option_in(TAKING, word, strlen(word)) && !joined && words[index + 1];
        if (copy && next) {
            list[count++] = words[index++];
            list[count++] = copy;
        } else if (copy) {
            char *both = malloc(strlen(copy) + sizeof "--options-file=");
            list[count++] = both ? strcat(strcpy(both, "--options-file="), copy) : words[index];
        } else {
            list[count++] = words[index];
            if (taking || next)
                list[count++] = words[++index];
        }
    }
    for (const char *arch = NULL; (arch = configured(session, "arch", arch));)
        list[count++] = (char *)arch;
    list[count] = NULL;
    return list;
}

SHARED char *formatted(const char *head, const char *middle, const char *tail, const char *end) {
    size_t room = strlen(head) + strlen(middle) + strlen(tail) + strlen(end) + 1;
    char *text = malloc(room);
    if (text)
        snprintf(text, room, "%s%s%s%s", head, middle, tail, end);
    return text;
}

/* nvcc's own variables without the caller's architectures. */
SHARED void filter_variables(char **variables) {
    for (; *variables; variables++) {
        if (!same_name(*variables, "NVCC_APPEND_FLAGS=", 18) && !same_name(*variables, "NVCC_PREPEND_FLAGS=", 19))
            continue;
        const char *value = strchr(*variables, '=') + 1;
        struct text kept = {0};
        if (filter_text(value, strlen(value), &kept, NULL)) {
            put(&kept, "", 1);
            char *changed = malloc((size_t)(value - *variables) + kept.size);
            if (changed) {
                memcpy(changed, *variables, (size_t)(value - *variables));
                memcpy(changed + (value - *variables), kept.at, kept.size);
                *variables = changed;
            }
        }
        forget(&kept);
    }
}

#endif
