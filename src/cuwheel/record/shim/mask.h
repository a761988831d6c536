/* Secrets, as cuwheel.masking knows them: never written, so that a record that a crash left behind has none either.
 *
 * The whole record is masked once more by cuwheel.masking when the build has ended. */
#ifndef CUWHEEL_MASK_H
#define CUWHEEL_MASK_H

#include "text.h"

#define MASK "***"

SHARED bool is_word(char byte) {
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_';
}

SHARED char upper(char byte) { return byte >= 'a' && byte <= 'z' ? (char)(byte - 32) : byte; }

static const char *const SECRET_PARTS[] = {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS",  "PWD",
                                           "AUTH",  "CREDENTIAL", "COOKIE", "NETRC", NULL};
static const char *const SECRET_INSIDE[] = {"API_KEY",    "APIKEY",      "ACCESS_KEY", "ACCESSKEY",         "PRIVATE_KEY",
                                            "PRIVATEKEY", "SIGNING_KEY", "SIGNINGKEY", "CONNECTION_STRING", NULL};

SHARED bool part_is_secret(const char *part, size_t length, bool last) {
    for (const char *const *each = SECRET_PARTS; *each; each++) {
        size_t whole = strlen(*each);
        if (memcmp(part, *each, whole < length ? whole : length) == 0 &&
            (length == whole || (length == whole + 1 && part[whole] == 'S')))
            return true;
    }
    return last && ((length == 3 && memcmp(part, "KEY", 3) == 0) || (length == 3 && memcmp(part, "DSN", 3) == 0));
}

SHARED bool is_secret(const char *name, size_t length) {
    char big[128];
    if (length == 0 || length >= sizeof big)
        return false;
    for (size_t index = 0; index < length; index++)
        big[index] = upper(name[index]);
    big[length] = 0;
    if (!strcmp(big, "PWD") || !strcmp(big, "OLDPWD") || !strcmp(big, "SSH_AUTH_SOCK") ||
        (starts(big, "XDG_SESSION_") && length > 12) || ends(big, length, "_FILE") || ends(big, length, "_PATH") ||
        ends(big, length, "_DIR"))
        return false;
    for (const char *const *each = SECRET_INSIDE; *each; each++)
        if (strstr(big, *each))
            return true;
    const char *session = strstr(big, "SESSION_KEY"); /* the one part with an underscore in it */
    if (session && (session == big || session[-1] == '_')) {
        const char *rest = session + strlen("SESSION_KEY");
        if (*rest == 'S')
            rest++;
        if (*rest == 0 || *rest == '_')
            return true;
    }
    for (char *part = big; part;) {
        char *end = strchr(part, '_');
        size_t size = end ? (size_t)(end - part) : strlen(part);
        if (part_is_secret(part, size, end == NULL))
            return true;
        part = end ? end + 1 : NULL;
    }
    return false;
}

/* `--password`: the next word is one. */
SHARED bool asks_secret(const char *word) {
    char name[96];
    size_t length = strlen(word);
    if (length < 4 || length - 2 >= sizeof name || memcmp(word, "--", 2) != 0 || strchr(word, '='))
        return false;
    for (size_t index = 2; index <= length; index++)
        name[index - 2] = word[index] == '-' ? '_' : word[index];
    return is_secret(name, length - 2);
}

static const char *const TOKENS[] = {"ghp_", "gho_", "ghu_", "ghs_",  "ghr_",  "github_pat_", "glpat-", "pypi-",
                                     "hf_",  "AKIA", "npm_", "xoxa-", "xoxb-", "xoxp-",       "xoxr-",  "eyJ",   NULL};

/* How much of the text here is a token of a known shape; 0 where none begins. */
SHARED size_t token_at(const char *at, size_t left) {
    for (const char *const *each = TOKENS; *each; each++) {
        size_t head = strlen(*each), size = head;
        if (left <= head || memcmp(at, *each, head) != 0)
            continue;
        bool dotted = strcmp(*each, "eyJ") == 0;
        size_t dots = 0;
        while (size < left && (is_word(at[size]) || at[size] == '-' || (dotted && at[size] == '.')))
            dots += at[size++] == '.';
        if (size - head >= (starts(*each, "xox") ? 10 : 16) && (!dotted || dots >= 2))
            return size;
    }
    return 0;
}

SHARED size_t login_at(const char *at, size_t left) {
    for (size_t size = 0; size < left && size <= 512; size++) {
        if (at[size] == '@')
            return size;
        if (at[size] == '/' || at[size] == '"' || at[size] == '\'' || at[size] == ' ' || (at[size] >= 9 && at[size] <= 13))
            break;
    }
    return 0;
}

SHARED size_t value_at(const char *at, size_t left) {
    size_t size = 0;
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

/* `-DTOKEN=…` */
SHARED bool defines_secret(const char *bytes, size_t name, size_t end) {
    bool option = name > 0 && bytes[name - 1] == '-' && bytes[name] == 'D';
    bool begins = name < 2 || (bytes[name - 2] != '-' && !is_word(bytes[name - 2]));
    return option && begins && end > name + 1 && is_secret(bytes + name + 1, end - name - 1);
}

/* Text without the secrets in it. */
SHARED void put_masked(struct text *into, const char *bytes, size_t count) {
    size_t name = 0; /* where the identifier that we are in began */
    for (size_t at = 0; at < count;) {
        size_t skip = 0, kept = 0;
        bool boundary = at == 0 || !is_word(bytes[at - 1]);
        if (boundary)
            name = at;
        if (at >= 3 && memcmp(bytes + at - 3, "://", 3) == 0)
            skip = login_at(bytes + at, count - at);
        if (!skip && boundary)
            skip = token_at(bytes + at, count - at);
        if (!skip && boundary && (kept = bearer_at(bytes + at, count - at)))
            skip = value_at(bytes + at + kept, count - at - kept);
        if (!skip && bytes[at] == '=' && at > name &&
            (is_secret(bytes + name, at - name) || defines_secret(bytes, name, at))) {
            kept = 1;
            skip = value_at(bytes + at + 1, count - at - 1);
        }
        if (skip) {
            put(into, bytes + at, kept);
            put_text(into, MASK);
            at += kept + skip;
            name = at;
        } else {
            put(into, bytes + at++, 1);
        }
    }
}

#endif
