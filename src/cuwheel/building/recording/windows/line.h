/* Command lines of Windows: one text, which every program takes apart itself, nearly all of them by these rules. */
#ifndef CUWHEEL_LINE_H
#define CUWHEEL_LINE_H

#include "system.h"

/* Behind the first word: a quote begins and ends it, and backslashes mean nothing in it. */
static const wchar_t *behind_program(const wchar_t *line) {
    bool quoted = false;
    for (; *line && (quoted || (*line != ' ' && *line != '\t')); line++)
        quoted ^= *line == '"';
    return line;
}

static const wchar_t *behind_blanks(const wchar_t *line) {
    while (*line == ' ' || *line == '\t')
        line++;
    return line;
}

/* The next word as Microsoft's C runtime reads it, written to `word`; where the line goes on. */
static const wchar_t *next_of_line(const wchar_t *at, wchar_t *word, size_t *length) {
    bool quoted = false;
    *length = 0;
    while (*at && (quoted || (*at != ' ' && *at != '\t'))) {
        size_t slashes = 0;
        while (at[slashes] == '\\')
            slashes++;
        at += slashes;
        size_t kept = *at == '"' ? slashes / 2 : slashes;
        while (kept--)
            word[(*length)++] = '\\';
        if (*at != '"') {
            if (*at && (quoted || (*at != ' ' && *at != '\t')))
                word[(*length)++] = *at++;
        } else if (slashes % 2) {
            word[(*length)++] = *at++;
        } else if (quoted && at[1] == '"') { /* two in quotes are one, and the quotes go on */
            word[(*length)++] = '"';
            at += 2;
        } else {
            quoted = !quoted;
            at++;
        }
    }
    return at;
}

/* All words, the program first. */
static char **words_of(const wchar_t *line) {
    size_t length = wcslen(line), count = 0;
    char **list = calloc(length / 2 + 3, sizeof *list);
    wchar_t *word = malloc((length + 1) * sizeof *word);
    const wchar_t *at = behind_program(line);
    if (!list || !word) {
        free(list);
        free(word);
        return NULL;
    }
    size_t size = 0;
    for (const wchar_t *each = line; each < at; each++)
        if (*each != '"')
            word[size++] = *each;
    list[count++] = narrow(word, size);
    for (at = behind_blanks(at); *at; at = behind_blanks(at)) {
        at = next_of_line(at, word, &size);
        if (!(list[count] = narrow(word, size)))
            break;
        count++;
    }
    free(word);
    return list;
}

static void put_slashes(struct text *line, size_t count) {
    while (count--)
        put(line, "\\", 1);
}

/* A word so that these rules give it back. */
static void put_quoted(struct text *line, const char *word) {
    if (*word && !strpbrk(word, " \t\n\v\"")) {
        put_text(line, word);
        return;
    }
    size_t slashes = 0;
    put(line, "\"", 1);
    for (const char *at = word; *at; at++) {
        if (*at == '"')
            put_slashes(line, slashes + 1);
        slashes = *at == '\\' ? slashes + 1 : 0;
        put(line, at, 1);
    }
    put_slashes(line, slashes);
    put(line, "\"", 1);
}

static wchar_t *wide_text(struct text *text) {
    put(text, "", 1);
    return text->lost ? NULL : wide(text->at);
}

/* A program by its path, and behind it words as they are, or the rest of a line as its caller wrote it. */
SHARED wchar_t *line_of(const char *program, char *const *words, const wchar_t *rest) {
    struct text line = {0};
    put(&line, "\"", 1);
    put_text(&line, program);
    put(&line, "\"", 1);
    for (; words && *words; words++) {
        put(&line, " ", 1);
        put_quoted(&line, *words);
    }
    wchar_t *made = wide_text(&line), *both = NULL;
    forget(&line);
    if (!made || !rest)
        return made;
    both = malloc((wcslen(made) + wcslen(rest) + 1) * sizeof *both);
    if (both)
        wcscat(wcscpy(both, made), rest);
    free(made);
    return both;
}

#endif
