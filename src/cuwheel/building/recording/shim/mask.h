/* Secrets, as cuwheel.support.masking knows them: never written, so that a record that a crash left behind has none either.
 *
 * The whole record is masked once more by cuwheel.support.masking when the build has ended. */
#ifndef CUWHEEL_MASK_H
#define CUWHEEL_MASK_H

#include "secrets.h" /* the lists of cuwheel.support.masking, written when this is compiled */
#include "text.h"

#define MASK "***"

/* Whether a terminal acts on what begins here, or does not show it; `size`: its bytes. */
SHARED bool is_unprintable(const unsigned char *at, size_t left, size_t *size) {
    size_t length = character(at, left);
    *size = length ? length : 1;
    if (!length)
        return true; /* no UTF-8 */
    unsigned long code = length == 1 ? at[0] : at[0] & (0x7Fu >> length);
    for (size_t index = 1; index < length; index++)
        code = code << 6 | (at[index] & 0x3F);
    bool found = code == '\n' || code == '\t';
    for (size_t index = 0; UNPRINTABLE[index][1] && !found; index++)
        found = code >= UNPRINTABLE[index][0] && code <= UNPRINTABLE[index][1];
    return found;
}

/* A name for people, as cuwheel.support.printable has it: one line, in which no CI service finds a command. */
SHARED void put_printable(struct text *into, const char *name) {
    size_t count = strlen(name);
    for (size_t at = 0, size; at < count; at += size) {
        bool hidden = is_unprintable((const unsigned char *)name + at, count - at, &size);
        put(into, hidden ? "?" : name + at, hidden ? 1 : size);
        if ((at == 0 && starts(name, "::")) || (at > 0 && name[at] == '#' && name[at - 1] == '#'))
            put(into, " ", 1);
    }
}
#define LONGEST_NAME 256

SHARED bool is_word(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_';
}

SHARED char upper(char byte) { return byte >= 'a' && byte <= 'z' ? (char)(byte - 32) : byte; }

SHARED bool is_one(const char *part, size_t length, const char *const *words) {
    for (; *words; words++) {
        size_t whole = strlen(*words);
        if (length >= whole && memcmp(part, *words, whole) == 0 &&
            (length == whole || (length == whole + 1 && part[whole] == 'S')))
            return true;
    }
    return false;
}

SHARED bool has_tail(const char *part, size_t length, const char *const *tails) {
    for (; *tails; tails++)
        if (length >= strlen(*tails) + 2 && ends(part, length, *tails))
            return true;
    return false;
}

SHARED bool is_harmless(const char *name, size_t length) {
    for (const char *const *each = HARMLESS; *each; each++)
        if (strcmp(name, *each) == 0)
            return true;
    for (const char *const *each = HARMLESS_HEADS; *each; each++)
        if (starts(name, *each))
            return true;
    for (const char *const *each = HARMLESS_ENDS; *each && name[0] != '_'; each++)
        if (ends(name, length, *each))
            return true;
    return false;
}

SHARED bool is_harmless_word(const char *part, size_t length) {
    for (const char *const *each = HARMLESS_WORDS; *each; each++)
        if (strlen(*each) == length && memcmp(part, *each, length) == 0)
            return true;
    return false;
}

SHARED bool is_secret(const char *name, size_t length) {
    char big[LONGEST_NAME];
    if (length == 0 || length >= sizeof big)
        return false;
    for (size_t index = 0; index < length; index++)
        big[index] = name[index] == '-' ? '_' : upper(name[index]);
    big[length] = 0;
    for (const char *const *each = ALWAYS; *each; each++)
        if (strstr(big, *each))
            return true;
    if (is_harmless(big, length))
        return false;
    for (const char *const *each = INSIDE; *each; each++)
        if (strstr(big, *each))
            return true;
    for (char *part = big; part;) {
        char *end = strchr(part, '_');
        size_t size = end ? (size_t)(end - part) : strlen(part);
        while (size > 0 && part[size - 1] >= '0' && part[size - 1] <= '9')
            size--;
        if (is_one(part, size, PARTS) || has_tail(part, size, TAILS))
            return true;
        if (!end && (is_one(part, size, LAST_PARTS) ||
                     (has_tail(part, size, LAST_TAILS) && !is_harmless_word(part, size))))
            return true;
        part = end ? end + 1 : NULL;
    }
    return false;
}

/* `--password`: the next word is one. */
SHARED bool asks_secret(const char *word) {
    size_t length = strlen(word);
    return length >= 4 && memcmp(word, "--", 2) == 0 && !strchr(word, '=') && is_secret(word + 2, length - 2);
}

/* How much of the text here is a token of a known shape; 0 where none begins. */
SHARED size_t token_at(const char *at, size_t left) {
    for (const struct token *each = TOKENS; each->head; each++) {
        size_t head = strlen(each->head), size = head;
        if (left <= head || memcmp(at, each->head, head) != 0)
            continue;
        bool name = true; /* small letters alone are one */
        for (; size < left && (is_word(at[size]) || at[size] == '-'); size++)
            name = name && !(at[size] >= '0' && at[size] <= '9') && upper(at[size]) != at[size];
        bool plain = !memchr(at + head, '_', size - head) && !memchr(at + head, '-', size - head);
        if (size - head >= each->least && !name && (plain || !each->plain))
            return size;
    }
    if (left > 3 && memcmp(at, "eyJ", 3) == 0) {
        size_t size = 3, dots = 0;
        while (size < left && (is_word(at[size]) || at[size] == '-' || at[size] == '.'))
            dots += at[size++] == '.';
        if (dots >= 1 && size >= 24)
            return size;
    }
    return 0;
}

/* To the last @ before the path: a password may have one in it. */
SHARED size_t login_at(const char *at, size_t left) {
    size_t found = 0;
    for (size_t size = 0; size < left && size <= 512; size++) {
        if (at[size] == '@')
            found = size;
        if (strchr("/\"'<> \t\r\n\v\f", at[size]))
            break;
    }
    return found;
}

/* Up to a blank, or the end of what is quoted. */
SHARED size_t value_at(const char *at, size_t left) {
    size_t size = 0, slashes = 0;
    while (slashes < left && slashes < 3 && at[slashes] == '\\')
        slashes++;
    if (slashes < left && (at[slashes] == '"' || at[slashes] == '\'')) {
        const char *end = memchr(at + slashes + 1, at[slashes], left - slashes - 1);
        const char *line = memchr(at, '\n', left);
        if (end && (!line || end < line) && end - at <= 2048)
            return (size_t)(end - at) + 1;
    }
    while (size < left && size < 2048 && !strchr(" \t\r\n\v\f\"';", at[size]))
        size++;
    return size;
}

SHARED size_t bearer_at(const char *at, size_t left) {
    static const char *const words[] = {"BEARER", "BASIC", NULL};
    for (const char *const *each = words; *each; each++) {
        size_t size = strlen(*each), same = 0;
        while (same < size && same < left && upper(at[same]) == (*each)[same])
            same++;
        if (same == size && size < left && at[size] == ' ' && value_at(at + size + 1, left - size - 1) >= 8)
            return size + 1;
    }
    return 0;
}

/* `TOKEN=…`, `-DTOKEN=…`, `/DTOKEN=…`, `--api-token=…`: whether what stands before the sign is a secret's name. */
SHARED bool assigns_secret(const char *bytes, size_t at) {
    size_t from = at, dashes = 0;
    while (from > 0 && at - from < LONGEST_NAME && (is_word(bytes[from - 1]) || bytes[from - 1] == '-'))
        from--;
    while (from + dashes < at && bytes[from + dashes] == '-')
        dashes++;
    const char *name = bytes + from + dashes;
    size_t length = at - from - dashes;
    bool slash = dashes == 0 && from > 0 && bytes[from - 1] == '/' && (from == 1 || !is_word(bytes[from - 2]));
    bool defines = (dashes == 1 || slash) && length > 1 && name[0] == 'D';
    return is_secret(name, length) || (defines && is_secret(name + 1, length - 1));
}

/* `--password X` inside of a text: how much of it stands before the secret; 0 where it is none. */
SHARED size_t option_at(const char *at, size_t left) {
    size_t name = 2, blank;
    if (left < 5 || at[0] != '-' || at[1] != '-')
        return 0;
    while (name < left && name < LONGEST_NAME && (is_word(at[name]) || at[name] == '-'))
        name++;
    for (blank = name; blank < left && blank < name + 4 && (at[blank] == ' ' || at[blank] == '\t');)
        blank++;
    bool behind = blank > name && blank < left && at[blank] != '-';
    return behind && is_secret(at + 2, name - 2) ? blank : 0;
}

/* The longest of these values that stands here. */
SHARED size_t known_at(const char *at, size_t left, const char *const *known) {
    size_t longest = 0;
    for (; known && *known; known++) {
        size_t size = (*known)[0] == at[0] ? strlen(*known) : 0;
        if (size > longest && size <= left && memcmp(at, *known, size) == 0)
            longest = size;
    }
    return longest;
}

/* Text without the secrets in it. `known`: the values of variables that hold some. */
SHARED void put_masked(struct text *into, const char *bytes, size_t count, const char *const *known) {
    for (size_t at = 0; at < count;) {
        size_t skip = known_at(bytes + at, count - at, known), kept = 0;
        bool boundary = at == 0 || !is_word(bytes[at - 1]);
        if (!skip && at >= 3 && memcmp(bytes + at - 3, "://", 3) == 0) {
            skip = login_at(bytes + at, count - at);
            if (skip == 3 && at >= 6 && memcmp(bytes + at - 6, "ssh", 3) == 0 && memcmp(bytes + at, "git", 3) == 0)
                skip = 0; /* everybody's, and no password */
        }
        if (!skip && boundary)
            skip = token_at(bytes + at, count - at);
        if (!skip && boundary && (kept = bearer_at(bytes + at, count - at)))
            skip = value_at(bytes + at + kept, count - at - kept);
        if (!skip && (at == 0 || bytes[at - 1] == ' ') && (kept = option_at(bytes + at, count - at)))
            skip = value_at(bytes + at + kept, count - at - kept);
        if (!skip && bytes[at] == '=' && assigns_secret(bytes, at)) {
            kept = 1;
            skip = value_at(bytes + at + 1, count - at - 1);
        }
        if (skip) {
            put(into, bytes + at, kept);
            put_text(into, MASK);
            at += kept + skip;
        } else {
            put(into, bytes + at++, 1);
        }
    }
}

#endif
