/* The module id that cudafe++ makes of a file's path, and where the file defines nothing for others of its own process
 * number: it is in the names of kernels. To fit a library that was built elsewhere, a file is given the id it has there.
 *
 * What a compiler calls is its own business, so nvcc is told to let us see cudafe++, and nothing else. */
#ifndef CUWHEEL_MODULE_ID_H
#define CUWHEEL_MODULE_ID_H

#include "prepare.h"

static const char *value_of(char *const *words, const char *option) {
    for (; *words; words++)
        if (strcmp(*words, option) == 0)
            return words[1];
    return NULL;
}

/* By its path; or by its name as ids have it, where all that is no letter or digit is a `_`. */
static bool is_named(const char *wanted, const char *source) {
    const char *name = last_part(source);
    if (strcmp(wanted, source) == 0)
        return true;
    for (; *wanted && *name; wanted++, name++)
        if (*wanted != (is_word(*name) ? *name : '_'))
            return false;
    return !*wanted && !*name;
}

/* Where the id of its file is known, cudafe++ reads it instead of making one. */
static void give_module_id(struct call *call, const struct session *session) {
    const char *source = value_of(call->argv, "--orig_src_path_name");
    const char *file = value_of(call->argv, "--module_id_file_name");
    if (!source || !file)
        return;
    for (const char *id = NULL; (id = configured(session, "module-id", id));) {
        const char *equals = strchr(id, '=');
        if (!equals || !is_named(equals + 1, source) || !write_file(file, id, (size_t)(equals - id)))
            continue;
        char **to = call->argv;
        for (char **each = call->argv; *each; each++)
            if (strcmp(*each, "--gen_module_id_file") != 0)
                *to++ = *each;
        *to = NULL;
        return;
    }
}

/* nvcc and all below it load our library, which there is after cudafe++ alone. */
static void look_inside(struct call *call, const struct session *session) {
    const char *preload = getenv("LD_PRELOAD");
    if (!session->library || !preload || !strstr(preload, session->library) || call->start != call->program)
        return;
    char **to = call->variables;
    for (char **each = call->variables; *each; each++)
        if (!starts(*each, "LD_PRELOAD="))
            *to++ = *each;
    *to = NULL;
    add_variable(call, formatted("LD_PRELOAD=", preload, "", ""));
    add_variable(call, formatted(VARIABLE "=", session->folder, "", ""));
    add_variable(call, formatted(INSIDE "=1", "", "", ""));
}

#endif
