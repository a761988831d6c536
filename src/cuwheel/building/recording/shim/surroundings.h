/* What a shim stands in for, and the environment that its caller has without us. */
#ifndef CUWHEEL_SURROUNDINGS_H
#define CUWHEEL_SURROUNDINGS_H

#include <stdlib.h>

#include "event.h"

#define SHIMS_MARK ".cuwheel-shims"     /* in a folder of shims */
#define TOOLKIT_LINK ".cuwheel-toolkit" /* in a shadow of a toolkit: leads to the real one */
#define PROGRAM_LINK ".cuwheel-program" /* beside a shim of one program: leads to it */

extern char **environ;

/* The folder (with its slash) that a path lies in. */
static size_t folder_length(const char *path) { return (size_t)(last_part(path) - path); }

static bool is_shim_folder(const char *folder, size_t length) {
    char path[PATH_ROOM + 32];
    if (length == 0 || length >= PATH_ROOM)
        return false;
    snprintf(path, sizeof path, "%.*s/" SHIMS_MARK, (int)length, folder);
    return access(path, F_OK) == 0;
}

/* The program that a shim of this name stands for; false where there is none. */
static bool find_real(const char *self, char *found) {
    size_t head = folder_length(self);
    char toolkit[PATH_ROOM + 64];
    snprintf(toolkit, sizeof toolkit, "%.*s../" TOOLKIT_LINK, (int)head, self);
    ssize_t length = readlink(toolkit, found, PATH_ROOM - 64);
    if (length > 0) {
        snprintf(found + length, 64, "/bin/%.50s", last_part(self));
        return access(found, X_OK) == 0;
    }
    char program[PATH_ROOM + 64];
    snprintf(program, sizeof program, "%.*s" PROGRAM_LINK, (int)head, self);
    length = readlink(program, found, PATH_ROOM - 1);
    if (length > 0) {
        found[length] = 0;
        return access(found, X_OK) == 0;
    }
    const char *folders = getenv("PATH");
    for (const char *at = folders; at;) {
        size_t size = strcspn(at, ":");
        struct stat info;
        if (size + strlen(last_part(self)) + 2 < PATH_ROOM && !is_shim_folder(at, size)) {
            snprintf(found, PATH_ROOM, "%.*s%s%s", (int)size, at, size ? "/" : "", last_part(self));
            if (stat(found, &info) == 0 && S_ISREG(info.st_mode) && access(found, X_OK) == 0)
                return true;
        }
        at = strchr(at, ':');
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* A list like LD_PRELOAD or PATH without what is ours; NULL where nothing is left. */
static char *without_ours(const char *variable, const char *separators, const char *library) {
    const char *equals = strchr(variable, '=') + 1;
    char *list = malloc(strlen(variable) + 1);
    bool first = true;
    if (!list)
        return (char *)variable;
    memcpy(list, variable, (size_t)(equals - variable));
    char *to = list + (equals - variable);
    for (const char *at = equals; at;) {
        size_t size = strcspn(at, separators);
        bool ours = library ? size == strlen(library) && memcmp(at, library, size) == 0 : is_shim_folder(at, size);
        if (!ours) {
            if (!first)
                *to++ = separators[0];
            memcpy(to, at, size);
            to += size;
            first = false;
        }
        at = at[size] ? at + size + 1 : NULL;
    }
    *to = 0;
    return first ? NULL : list;
}

/* A variable that leads to shims, as it was before it did; NULL for any other. */
static char *led_back(const struct session *session, const char *variable) {
    for (const char *led = NULL; (led = configured(session, "led", led));) {
        if (strcmp(led, variable) != 0)
            continue;
        size_t name = (size_t)(strchr(led, '=') - led) + 1;
        const char *end = session->environ.at + session->environ.size;
        for (const char *at = session->environ.at; at < end; at += strlen(at) + 1)
            if (strncmp(at, led, name) == 0)
                return (char *)at;
    }
    return NULL;
}

/* The caller's environment as it would be without us. */
static char **own_environment(const struct session *session) {
    size_t count = 0, room = 0;
    while (environ[room])
        room++;
    char **list = malloc((room + 3) * sizeof *list);
    for (char **each = environ; list && *each; each++) {
        char *before = led_back(session, *each), *kept = before ? before : *each;
        if (starts(*each, VARIABLE "=") || starts(*each, INSIDE "="))
            continue;
        if (session->library && starts(*each, "LD_PRELOAD=") && strstr(*each, session->library))
            kept = without_ours(*each, ": ", session->library);
        else if (!before && starts(*each, "PATH="))
            kept = without_ours(*each, ":", NULL);
        if (kept)
            list[count++] = kept;
    }
    if (list)
        list[count] = NULL;
    return list ? list : environ;
}

#endif
