/* What a record's session asks for, and the lines that are written into the record.
 *
 * $CUWHEEL_RECORD names the session's own folder: `config` (key=value, ended by zero bytes) and `environ`, the
 * environment that the command was started with. The record is elsewhere, and never holds that one unmasked. */
#ifndef CUWHEEL_EVENT_H
#define CUWHEEL_EVENT_H

#include "mask.h"
#include "text.h"
#include "tools.h"

#define VARIABLE "CUWHEEL_RECORD"
#define INSIDE "CUWHEEL_RECORD_INSIDE" /* a compiler's own calls: see module_id.h */
#define RUN_WORD "--cuwheel-run"
#define MAX_CONFIG (16u << 20)
#define MAX_RESPONSE (1u << 20)
#define MAX_RESPONSES 64
#define MAX_PARENT 4096
#define MAX_KNOWN 64
#define SHORTEST_KNOWN 6 /* a shorter one stands in ordinary words */

/* Large things are not on the stack: this also runs in threads of others, whose stacks may be small. */
struct session {
    struct text config, environ;
    char folder[PATH_ROOM], path[PATH_ROOM + 16];
    const char *known[MAX_KNOWN + 1]; /* values that are secrets */
    const char *record, *library;
    bool mask, phases;
    int64_t began;
};

SHARED const char *variable_in(char *const *environ, const char *name) {
    size_t length = strlen(name);
    for (; environ && *environ; environ++)
        if (same_name(*environ, name, length) && (*environ)[length] == '=')
            return *environ + length + 1;
    return NULL;
}

/* The value of a key of the configuration, from `after` on (NULL: the first). */
SHARED const char *configured(const struct session *session, const char *key, const char *after) {
    size_t length = strlen(key);
    const char *end = session->config.at + session->config.size;
    const char *at = after ? after + strlen(after) + 1 : session->config.at;
    for (; at < end; at += strlen(at) + 1)
        if (strncmp(at, key, length) == 0 && at[length] == '=')
            return at + length + 1;
    return NULL;
}

SHARED void find_known(struct session *session) {
    size_t count = 0;
    const char *end = session->environ.at + session->environ.size;
    for (const char *at = session->environ.at; at < end && count < MAX_KNOWN; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');
        if (equals && strlen(equals + 1) >= SHORTEST_KNOWN && is_secret(at, (size_t)(equals - at)))
            session->known[count++] = equals + 1;
    }
}

SHARED bool load_session(struct session *session, const char *folder) {
    memset(session, 0, sizeof *session);
    char *path = session->path;
    size_t length = folder ? strlen(folder) : 0;
    if (length == 0 || length >= sizeof session->folder)
        return false;
    memcpy(session->folder, folder, length + 1);
    memcpy(path, folder, length);
    memcpy(path + length, "/config", sizeof "/config");
    if (!read_file(path, MAX_CONFIG, &session->config))
        return false;
    memcpy(path + length, "/environ", sizeof "/environ");
    if (!read_file(path, MAX_CONFIG, &session->environ))
        return false;
    session->record = configured(session, "record", NULL);
    session->library = configured(session, "library", NULL);
    session->mask = configured(session, "mask", NULL) != NULL;
    if (session->mask)
        find_known(session);
    session->phases = configured(session, "phases", NULL) != NULL;
    for (const char *digit = configured(session, "began", NULL); digit && *digit >= '0' && *digit <= '9'; digit++)
        session->began = session->began * 10 + (*digit - '0');
    return session->record && is_absolute(session->record);
}

SHARED void end_session(struct session *session) {
    forget(&session->config);
    forget(&session->environ);
}

/* What is written outlives any process; `lasting` waits for the disk, so that it outlives the machine too. */
SHARED bool append(const struct session *session, const struct text *line, bool lasting) {
    struct text path = {0};
    put_text(&path, session->record);
    put(&path, "/calls.jsonl", sizeof "/calls.jsonl");
    bool written = !line->lost && !path.lost && append_to(path.at, line, lasting);
    forget(&path);
    return written;
}

SHARED void put_told(struct text *line, const struct session *session, const char *bytes, size_t count) {
    if (!session->mask) {
        put_json(line, bytes, count);
        return;
    }
    struct text masked = {0};
    put_masked(&masked, bytes, count, session->known);
    put_json(line, masked.at ? masked.at : "", masked.size);
    forget(&masked);
}

SHARED void put_key(struct text *line, const char *key) {
    put_text(line, ",\"");
    put_text(line, key);
    put_text(line, "\":");
}

SHARED void put_words(struct text *line, const struct session *session, char *const *words) {
    put_text(line, "[");
    for (size_t index = 0; words[index]; index++) {
        if (index)
            put_text(line, ",");
        if (session->mask && index && asks_secret(words[index - 1]))
            put_text(line, "\"" MASK "\"");
        else
            put_told(line, session, words[index], strlen(words[index]));
    }
    put_text(line, "]");
}

/* LD_PRELOAD with our library in it, and the session's own variable, are not the caller's. */
SHARED bool is_ours(const struct session *session, const char *variable) {
    if (starts(variable, VARIABLE "="))
        return true;
    return session->library && starts(variable, "LD_PRELOAD=") && strstr(variable, session->library);
}

SHARED void put_variable(struct text *line, const struct session *session, const char *variable, bool first) {
    const char *equals = strchr(variable, '=');
    size_t name = equals ? (size_t)(equals - variable) : strlen(variable);
    const char *value = equals ? equals + 1 : "";
    if (!first)
        put_text(line, ",");
    put_json(line, variable, name);
    put_text(line, ":");
    if (session->mask && *value && is_secret(variable, name))
        put_text(line, "\"" MASK "\"");
    else
        put_told(line, session, value, strlen(value));
}

/* How an environment differs from the one that the command was started with. Both may have a few hundred variables. */
SHARED void put_changes(struct text *line, const struct session *session, char *const *environ) {
    const char *base = session->environ.at, *end = base + session->environ.size;
    bool first = true;
    put_key(line, "changed");
    put_text(line, "{");
    for (char *const *each = environ; each && *each; each++) {
        bool same = false;
        for (const char *at = base; at < end && !same; at += strlen(at) + 1)
            same = strcmp(at, *each) == 0;
        if (same || is_ours(session, *each) || !strchr(*each, '='))
            continue;
        put_variable(line, session, *each, first);
        first = false;
    }
    put_text(line, "}");
    put_key(line, "unset");
    put_text(line, "[");
    first = true;
    for (const char *at = base; at < end; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');
        bool kept = false;
        for (char *const *each = environ; equals && each && *each && !kept; each++)
            kept = strncmp(*each, at, (size_t)(equals - at) + 1) == 0;
        if (kept || !equals)
            continue;
        if (!first)
            put_text(line, ",");
        put_json(line, at, (size_t)(equals - at));
        first = false;
    }
    put_text(line, "]");
}

SHARED void put_response(struct text *line, const struct session *session, const char *path, size_t length, int depth,
                         int *count) {
    struct text name = {0}, inside = {0};
    if (length == 0 || length >= PATH_ROOM || *count >= MAX_RESPONSES)
        return;
    put(&name, path, length);
    put(&name, "", 1);
    bool read = !name.lost && read_file(name.at, MAX_RESPONSE, &inside);
    const char *encoding = read ? decoded(&inside) : NULL;
    if (name.lost || (!read && !is_there(name.at))) { /* `@rpath` and the like are no files */
        forget(&name);
        forget(&inside);
        return;
    }
    put_text(line, (*count)++ ? ",{\"path\":" : "{\"path\":");
    put_told(line, session, name.at, length);
    forget(&name);
    put_key(line, "text");
    if (read)
        put_told(line, session, inside.at, inside.size);
    else
        put_text(line, "null");
    if (encoding) {
        put_key(line, "encoding");
        put_json(line, encoding, strlen(encoding));
    }
    put_text(line, "}");
    for (size_t at = 0; read && depth > 0 && at < inside.size; at++) {
        if (inside.at[at] != '@' || (at > 0 && !strchr(" \t\r\n\"'", inside.at[at - 1])))
            continue;
        size_t size = 0;
        while (at + 1 + size < inside.size && !strchr(" \t\r\n\"'", inside.at[at + 1 + size]))
            size++;
        put_response(line, session, inside.at + at + 1, size, depth - 1, count);
    }
    forget(&inside);
}

/* The value of an option that names files of options: in the same word, or the next one; NULL where it is none. */
SHARED const char *options_file(char *const *words, size_t index, bool *next) {
    static const char *const names[] = {"--options-file", "-optf", NULL};
    *next = false;
    for (const char *const *name = names; *name; name++) {
        if (!starts(words[index], *name))
            continue;
        const char *rest = words[index] + strlen(*name);
        if (*rest == '=')
            return rest + 1;
        if (*rest == 0 && words[index + 1]) {
            *next = true;
            return words[index + 1];
        }
    }
    return NULL;
}

SHARED void put_responses(struct text *line, const struct session *session, char *const *words) {
    int count = 0;
    bool next;
    put_key(line, "response_files");
    put_text(line, "[");
    for (size_t index = 0; words[index]; index++) {
        const char *files = words[index][0] == '@' ? words[index] + 1 : NULL;
        if (files) {
            put_response(line, session, files, strlen(files), 2, &count);
            continue;
        }
        for (files = options_file(words, index, &next); files && *files;) {
            size_t size = strcspn(files, ",");
            put_response(line, session, files, size, 2, &count);
            files += size + (files[size] == ',');
        }
    }
    put_text(line, "]");
}

SHARED void put_parent(struct text *line, const struct session *session) {
    struct text found = {0};
    put_parent_command(&found, MAX_PARENT);
    put_key(line, "parent");
    put_told(line, session, found.at ? found.at : "", found.size);
    forget(&found);
}

/* The beginning of every line that tells of a call; the caller ends it with a brace and a newline. */
SHARED void put_call(struct text *line, const struct session *session, const char *event, const char *id,
                     const struct tool *tool, const char *program, char *const *argv, char *const *environ) {
    struct text folder = {0};
    put_text(line, "{\"event\":\"");
    put_text(line, event);
    put_text(line, "\",\"id\":\"");
    put_text(line, id);
    put_text(line, "\",\"pid\":");
    put_number(line, process_id());
    put_key(line, "began");
    put_number(line, now() - session->began);
    put_key(line, "tool");
    put_json(line, tool->kind, strlen(tool->kind));
    put_key(line, "name");
    put_json(line, last_part(program), strlen(last_part(program)));
    put_key(line, "program");
    put_told(line, session, program, strlen(program));
    put_key(line, "words");
    put_words(line, session, argv[0] ? argv + 1 : argv);
    put_key(line, "cwd");
    put_folder(&folder);
    put_told(line, session, folder.at ? folder.at : "", folder.size);
    forget(&folder);
    put_parent(line, session);
    put_changes(line, session, environ);
    put_responses(line, session, argv[0] ? argv + 1 : argv);
}

SHARED void make_id(char *id, size_t room) { snprintf(id, room, "%llx-%x", (unsigned long long)now(), (unsigned)process_id()); }

#endif
