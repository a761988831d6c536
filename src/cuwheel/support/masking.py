"""Secrets in variables, command lines, logs and addresses: kept and told as `***`.

By the names of variables, options and fields, by logins and signatures in addresses, by the shapes of tokens that are
known, and by letters that only chance puts in a row. A secret without any of these looks like other text: a word,
or a hash in hexadecimal. Code that keeps text (writes or returns it) calls `known`.
The lists are the only ones: those of the C shims are written from them. Nothing but the standard library of Python 3.9:
this also travels in the kit.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cuwheel_core.support.patterns import lazy_pattern

T = TypeVar("T")

MASK = "***"
_SHORTEST = 6  # of secrets that are looked for: a shorter one stands in ordinary words

# Names, in capitals, in parts between underscores (a dash is one); digits at the end of a part do not count.
# A part that is one of these, or its plural: HF_TOKEN, TOKEN_OF_MINE.
PARTS = (
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "AUTH", "CREDENTIAL", "CRED", "COOKIE", "NETRC"),
    *("JWT", "SESSION", "BEARER"),
)
# The same of the last part alone: LLVM_NEW_PASS_MANAGER is none. DB_PASS, MYSQL_PWD, DJANGO_KEY, SENTRY_DSN, GH_PAT.
LAST_PARTS = ("PASS", "PWD", "KEY", "DSN", "PSWD", "PAT", "PW")
# A part that ends so, with two letters before it or more: PGPASSWORD, dbPassword, githubToken.
TAILS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIALS", "JWT", "SESSID")
# The last part, where it ends so: SSHPASS, DBPWD.
LAST_TAILS = ("PASS", "PWD")
# Anywhere in the name.
INSIDE = (
    *("API_KEY", "APIKEY", "ACCESS_KEY", "ACCESSKEY", "PRIVATE_KEY", "PRIVATEKEY", "SIGNING_KEY", "SIGNINGKEY"),
    *("SECRET_KEY", "SECRETKEY", "SESSION_KEY", "SESSIONID", "CONNECTION_STRING", "CONNECTIONSTRING"),
)
# The same, whatever the name ends in: who knows the address of a webhook may use it.
ALWAYS = ("WEBHOOK",)
# And what only looks like one: whole names, their beginnings, their ends, and words.
HARMLESS = (
    *("PWD", "OLDPWD", "SSH_AUTH_SOCK", "JOBSERVER_AUTH"),  # make's: descriptors, or a pipe
    *("DESKTOP_SESSION", "KDE_FULL_SESSION", "GNOME_DESKTOP_SESSION_ID", "TERM_SESSION_ID", "WT_SESSION"),
)
HARMLESS_HEADS = ("XDG_SESSION_", "DBUS_SESSION_", "KDE_SESSION_")
HARMLESS_ENDS = (
    *(
        "_FILE",
        "_PATH",
        "_DIR",
        "_SIZE",
        "_LENGTH",
        "_LEN",
        "_TYPE",
        "_COUNT",
        "_LIMIT",
        "_MODE",
        "_METHOD",
        "_TIMEOUT",
    ),
    *("_TTL", "_MANAGER", "_PROVIDER", "_ENABLED", "_URL", "_SOCK", "_PARALLELISM", "PUBLIC_KEY", "CACHE_KEY"),
    *("PRIMARY_KEY", "FOREIGN_KEY", "MAX_TOKENS", "MIN_TOKENS", "NUM_TOKENS", "N_TOKENS", "TOTAL_TOKENS"),
    *("BOS_TOKEN", "EOS_TOKEN", "PAD_TOKEN", "UNK_TOKEN", "SEP_TOKEN", "CLS_TOKEN", "MASK_TOKEN", "_TOKEN_ID"),
)
HARMLESS_WORDS = (
    *("BYPASS", "COMPASS", "ENCOMPASS", "OVERPASS", "UNDERPASS", "TRESPASS", "SURPASS", "MULTIPASS", "SUBPASS"),
    *("RENDERPASS", "FUNCTIONPASS", "MODULEPASS", "LOOPPASS", "ONEPASS", "TWOPASS", "FIRSTPASS", "SECONDPASS"),
)
# Options that hold a secret, of the programs that have them: `joined` where it stands in the same word alone. Between a
# program and its second word others may stand (`docker --config x login`). Response files, variables and logs have the
# same shapes: this is the one table of them.
SHORT_OPTIONS = {
    "sshpass": ("-p",),
    **dict.fromkeys(("docker login", "podman login", "buildah login", "skopeo login", "nerdctl login"), ("-p",)),
    **dict.fromkeys(("twine upload", "az login", "oc login", "conan user", "conan login", "helm login"), ("-p",)),
    **dict.fromkeys(("oras login", "crane login", "regctl login"), ("-p",)),
    "uv publish": ("-t", "-p"),
    "curl": ("-u", "-U", "--user", "--proxy-user", "-b", "--oauth2-bearer", "--login-options"),
    **dict.fromkeys(("unzip", "zip", "mosquitto_pub", "mosquitto_sub"), ("-P",)),
    "smbclient": ("-U",),
    "lftp": ("-u",),
    **dict.fromkeys(("http", "https", "xh", "xhs"), ("-a",)),
    **dict.fromkeys(("plink", "pscp", "psftp"), ("-pw",)),
    **dict.fromkeys(("sqlcmd", "tsql", "bcp"), ("-P",)),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore"), ("-p",)),
    "ldapsearch": ("-w",),
    "redis-cli": ("-a",),
    "keytool": ("-storepass", "-keypass"),
    "jarsigner": ("-storepass", "-keypass"),
    "openssl": ("-pass", "-passin", "-passout", "-k"),
    "osslsigncode": ("-pass",),
    "signtool sign": ("/p", "-p"),
    "mysql": ("-p joined",),
    "mysqldump": ("-p joined",),
    "mysqladmin": ("-p joined",),
    "mariadb": ("-p joined",),
    "7z": ("-p joined",),
}
# Of any program, where NAME:PASSWORD stands behind them or in the same word (`-uann:hunter2`, `--user=ann:hunter2`).
LOGIN_OPTIONS = ("-u", "-U", "-E", "--user", "--proxy-user", "--cert", "--proxy-cert", "--login", "--userpwd")
# With a single dash compilers have too many options: these alone hold a secret.
SINGLE_DASH = ("token", "password", "passwd", "passphrase", "pass", "secret", "apikey", "api-key", "auth-token")
# Tokens that are known by how they begin, with how many letters follow at least, and whether those are letters and
# digits alone. Small letters alone are a name: npm_package_dependencies is a variable.
TOKENS = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hf_", "npm_", "dop_v1_", "shpat_"), (20, True)),
    **dict.fromkeys(("AKIA", "ASIA"), (16, True)),
    **dict.fromkeys(("github_pat_", "sk-ant-", "sk-proj-", "sk-svcacct-", "nvapi-", "rubygems_"), (20, False)),
    **dict.fromkeys(("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "gloas-", "glsoat-"), (16, False)),
    **dict.fromkeys(("pypi-", "dckr_pat_", "dckr_oat_", "sk_live_", "sk_test_", "rk_live_", "tskey-"), (16, False)),
    **dict.fromkeys(("lin_api_", "sntrys_", "sntryu_", "wandb_v1_", "ATATT3x", "ATCTT3x", "hvs."), (20, False)),
    **dict.fromkeys(("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-"), (10, False)),
    **dict.fromkeys(("ya29.", "AIza", "AGE-SECRET-KEY-1"), (30, False)),
    "sk-": (32, True),
    "SG.": (16, False),
}

_QUOTED = r"\\{0,3}\"[^\"\n]{0,2048}\"|'[^'\n]{0,2048}'"
_VALUE = rf"(?:{_QUOTED}|[^\s\"';]{{1,2048}})"
# A password may have an @ in it: the login goes to the last one before the path.
_LOGIN = lazy_pattern(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://)(?P<login>[^\s/\"'<>]{1,512})@")
_SHAPES = lazy_pattern(
    r"\b(?:"
    + "|".join(
        rf"{re.escape(head)}{'[A-Za-z0-9]' if plain else '[A-Za-z0-9_-]'}{{{least},2048}}"
        for head, (least, plain) in TOKENS.items()
    )
    + r"|eyJ[\w-]{10,4096}\.[\w-]{10,4096}(?:\.[\w-]{0,4096}){0,3})(?![\w-])",
    re.ASCII,
)
_HEADS = (*TOKENS, "eyJ")
_BLOCK = lazy_pattern(
    r"(?P<head>-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?:[^-]|-(?!----END)){1,65536}(?P<end>-----END)?",
    re.ASCII,
)
_HOOK_HOSTS = ("hooks.slack.com/", "discord", "webhook.office.com/", "api.telegram.org/")
_HOOKS = lazy_pattern(
    r"(?P<head>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|webhook\.office\.com/webhookb2|api\.telegram\.org)/)[^\s\"'<>]{1,2048}",
    re.ASCII,
)
# In the query of an address; the rest of it stays readable.
_QUERY = lazy_pattern(r"(?P<head>[?&;](?P<name>[A-Za-z][\w.-]{1,80})=)(?P<value>[^\s&#;\"'<>]{1,4096})", re.ASCII)
_SIGNATURES = ("SIG", "SIGNATURE", "CREDENTIAL", "HMAC", "AWSACCESSKEYID", "GOOGLEACCESSID")
# `Basic structures` are words.
_BEARER = lazy_pattern(
    r"(?P<head>\b(?:Bearer|Basic)\s{1,4})(?=[\w.-]{0,2048}(?:[\d=~+/]|\.\w))[\w.~+/=-]{8,4096}",
    re.IGNORECASE | re.ASCII,
)
_HEADER = lazy_pattern(
    r"(?P<head>\b(?:(?:Proxy-)?Authorization|(?:Set-)?Cookie)\s{0,4}:\s{0,4}(?:(?:Bearer|Basic|Digest|Token|Negotiate)\s{1,4})?)"
    r"[^\s\"'][^\n\"']{0,4095}",
    re.IGNORECASE | re.ASCII,
)
_ASSIGNED = lazy_pattern(
    rf"(?P<define>(?<![\w-])[-/]D|\b)(?P<name>[A-Za-z_][\w-]{{1,80}})=(?P<value>{_VALUE})", re.ASCII
)
# JSON's and YAML's quoted names, and headers of HTTP.
_FIELD = lazy_pattern(
    rf"(?P<head>(?:(?P<quote>[\"'])(?P<name>[A-Za-z_][\w-]{{1,80}})\\{{0,3}}(?P=quote)|\b(?P<header>[A-Za-z]{{1,40}}(?:-[A-Za-z]{{1,40}}){{1,4}}))"
    rf"\s{{0,4}}:\s{{0,4}})(?P<value>{_VALUE})",
    re.ASCII,
)
# `password: X`. A bare `token:` or `key:` is a compiler's word for other things, unless something random follows.
_SAID = lazy_pattern(
    rf"(?P<head>(?<![\w.\"'/-])(?<!::)(?P<name>[A-Za-z_][\w-]{{1,80}})[ \t]?:\\{{0,2}}[ \t]{{1,4}})(?P<value>{_VALUE})",
    re.ASCII,
)
_CERTAIN = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "_TOKEN", *INSIDE)
# Types and permissions (`id-token: write` in a workflow) say nothing secret.
_PLAIN = lazy_pattern(
    r"(?:str|bytes|string|Optional|None|null|int|bool|[Tt]rue|[Ff]alse|Any|read|write)(?![\w+/=.@!#$%^&*-])", re.ASCII
)
# Words that may be random: neither part of a longer name or path, nor the digest of a hash that is named before it.
_WORD = lazy_pattern(
    r"(?<![\w+/=.~\\$@%-])(?<!sha1[-=:])(?<!sha\d\d\d[-=:])(?<!SHA\d\d\d[-=:])(?<!md5[-=:])(?<!blake2b[-=:])"
    r"(?P<word>[A-Za-z0-9][\w+/-]{19,511})(?P<end>={0,2})(?![\w+/\\.@$-])",
    re.ASCII,
)
_LETTERS = lazy_pattern("[A-Za-z0-9]+")
_FOLDER = lazy_pattern("[a-z]{4,}")  # then it is a path
_TYPE_NAME = lazy_pattern("[0-9][a-z]{4,}.*E_?$")  # of C++, mangled without what tells so
_HEX = lazy_pattern("[0-9a-fA-F]{32,}")
_PIECE = lazy_pattern("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")  # of a name that is written InThisWay
_LEAST_RANDOM = 20
_LEAST_PIECES = 0.3  # for each letter: at random there are 0.45, in names 0.2
_LONGEST_WORD = 6  # with its first letter: longer ones are hardly ever there by chance
# `--password X`; of a single dash compilers have too many.
_OPTION_WORD = r"--(?P<name>[A-Za-z][\w-]{1,80})"
_SINGLE = rf"-(?:{'|'.join(SINGLE_DASH)})"
_OPTION = lazy_pattern(rf"{_OPTION_WORD}|(?P<single>{_SINGLE})", re.ASCII)
# Two numbers are a user and a group, two colons a name of C++, and `C:\\` or `a:/b` a path.
_BLANK = r"(?:[ \t]|\\\n)"  # a line that goes on is one
_LOGIN_WORD = r"(?!\d+:\d+(?![\w.-]))[^\s:@/\\\"'=]{1,128}:(?![:/\\])"
_NAME_AND_PASSWORD = lazy_pattern(rf"{_LOGIN_WORD}.+", re.DOTALL)
_OF_LOGIN = "|".join(
    re.escape(each) + (f"{_BLANK}{{0,4}}" if len(each) == len("-u") else f"(?:=|{_BLANK}{{1,4}})")
    for each in LOGIN_OPTIONS
)
_LOGIN_OPTION = lazy_pattern(
    rf"(?<![\w-])(?P<head>{_OF_LOGIN})"
    rf"(?:(?P<quote>[\"']){_LOGIN_WORD}[^\"'\n]{{1,512}}(?P=quote)|{_LOGIN_WORD}[^\s\"',;|]{{1,512}})"
)
# A login before a host without a scheme, as proxies are given. What names a picture of a container is none.
_BARE_LOGIN = lazy_pattern(
    r"(?P<login>[^\s:@/\\\"']{1,128}:[^\s:@/\"']{1,512})@(?!sha\d)[A-Za-z][\w.-]{0,255}(?=$|[:/])", re.ASCII
)
# The words of a command as Python and JSON list them.
_LISTED = lazy_pattern(r"\"(?P<double>(?:[^\"\\\n]|\\[^\n]){0,2048})\"|'(?P<single>(?:[^'\\\n]|\\[^\n]){0,2048})'")
_LIST = lazy_pattern(r"[\[(]\s{0,16}(?=[\"'])")
_COMMA = lazy_pattern(r",\s{0,16}")
_SPACED = lazy_pattern(
    rf"(?<![\w-])(?P<head>(?:{_OPTION_WORD}|{_SINGLE}){_BLANK}{{1,4}})(?:{_QUOTED}|[^\s\"'-][^\s\"']{{0,2047}})",
    re.ASCII,
)
_EXE = r"(?:\.(?:exe|EXE))?\"?"  # as Windows names programs, and quotes those with blanks in their path
_BETWEEN = rf"(?:{_BLANK}+[^\s|;&\"'\\]{{1,256}}){{0,6}}?{_BLANK}{{0,4}}?"
_PROGRAM = lazy_pattern(
    rf"(?<![\w.-])(?P<program>{'|'.join(each.replace(' ', f'{_EXE}{_BETWEEN} ') for each in SHORT_OPTIONS)})"
    rf"(?P<end>{_EXE})(?P<rest>{_BLANK}(?:\"[^\"\n]{{0,2048}}\"|'[^'\n]{{0,2048}}'|\\\n|[^\n|;]){{1,8192}})",
    re.ASCII,
)
_PROGRAMS = tuple({each.partition(" ")[0] for each in SHORT_OPTIONS})
_WITH_VERB = frozenset(each.partition(" ")[0] for each in SHORT_OPTIONS if " " in each)
# As a shell takes them apart; a quote that nothing closes stands alone.
_SHELL_WORDS = lazy_pattern(r"(?:[ \t\n]|\\\n)+|(?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])+|.", re.DOTALL)
_CURL_FLAGS = lazy_pattern(r"-[a-zA-Z#0-9]{1,20}?[uU](?P<login>.*)", re.DOTALL)  # `-sSu`, `-sSuann:hunter2`
_VERB = lazy_pattern(rf"{_EXE}(?:[ \t].*)?[ \t]", re.DOTALL)


@functools.lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as its name tells."""
    big = name.upper().replace("-", "_")
    if any(each in big for each in ALWAYS):
        return True
    if big in HARMLESS or big.startswith(HARMLESS_HEADS) or (big.endswith(HARMLESS_ENDS) and big[:1] != "_"):
        return False
    if any(each in big for each in INSIDE):
        return True
    parts = [each.rstrip("0123456789") for each in big.split("_")]
    if any(_is_one(each, PARTS) or each[2:].endswith(TAILS) for each in parts):
        return True
    last = parts[-1]
    return _is_one(last, LAST_PARTS) or (last[2:].endswith(LAST_TAILS) and last not in HARMLESS_WORDS)


def _is_one(part: str, words: Sequence[str]) -> bool:
    return part in words or (part.endswith("S") and part[:-1] in words)


def text(value: str, *, random: bool = True) -> str:
    """Text with secrets in it made unreadable. `random`: also words that have no mark but their letters."""
    if len(value) < _SHORTEST:
        return value
    value = _LOGIN.sub(_without_login, value) if "://" in value else value
    value = (
        _BLOCK.sub(lambda match: f"{match['head']}{MASK}{match['end'] or ''}", value)
        if "PRIVATE KEY" in value
        else value
    )
    value = _without_shapes(value)
    if (":" in value or " " in value) and _has_one(value.lower(), ("bearer", "basic", "authorization", "cookie")):
        value = _BEARER.sub(rf"\g<head>{MASK}", _HEADER.sub(rf"\g<head>{MASK}", value))
    if " " in value or "\t" in value:
        value = _PROGRAM.sub(_without_short, value) if _has_one(value, _PROGRAMS) else value
        if "-" in value:
            value = _SPACED.sub(_without_spaced, value)
    if ":" in value and "-" in value:
        value = _LOGIN_OPTION.sub(lambda match: match["head"] + MASK, value)
    if _has_one(value, ("['", '["', "('", '("', "[\n")) and "-" in value:
        value = _without_listed(value)
    if ":" in value:
        value = _FIELD.sub(
            lambda match: (
                match["head"] + _masked(match["value"])
                if is_secret(match["name"] or match["header"]) and not _PLAIN.match(match["value"])
                else match[0]
            ),
            value,
        )
        value = _SAID.sub(lambda match: match["head"] + _masked(match["value"]) if _tells(match) else match[0], value)
    if _has_one(value, _HOOK_HOSTS):
        value = _HOOKS.sub(rf"\g<head>{MASK}", value)
    if "=" in value:
        value = _QUERY.sub(lambda match: match["head"] + MASK if _signs(match["name"]) else match[0], value)
        value = _ASSIGNED.sub(_without_value, value)
    return _WORD.sub(_of_chance, value) if random else value


def is_random(word: str, least: int = _LEAST_RANDOM) -> bool:
    """Whether only chance makes such a row of letters. Of hashes in hexadecimal and names, mangled ones too: no."""
    if (
        word.startswith("sha")
        or "_Z" in word
        or _TYPE_NAME.search(word)
        or any(map(_FOLDER.fullmatch, word.split("/")[:-1]))
    ):
        return False
    # Base64 has two signs more; names have one of them after each word.
    rows = _LETTERS.findall(word)
    apart = (len(rows) - 1) * 12 > len(word) or any(each.isalpha() and len(each) > len("name") for each in rows)
    for row in rows if apart else ["".join(rows)]:
        if len(row) < least or row in (row.lower(), row.upper()) or not any(map(str.isdigit, row)):
            continue
        pieces = _PIECE.findall(row)
        words = [each for each in pieces if len(each) > _LONGEST_WORD and not each.isupper()]
        if len(pieces) - 1 >= _LEAST_PIECES * (len(row) - 1) and len(words) <= len(row) // 40:
            return True
    return False


def _tells(match: re.Match[str]) -> bool:
    name, value = match["name"], match["value"]
    if not is_secret(name) or _PLAIN.match(value):
        return False
    big = name.upper().replace("-", "_")
    if any(each in big for each in _CERTAIN):
        return True
    return is_random(value, 16) or (not big.endswith("KEY") and bool(_HEX.fullmatch(value)))


def _signs(name: str) -> bool:
    return is_secret(name) or any(each in _SIGNATURES for each in re.split("[_.-]", name.upper()))


def _without_value(match: re.Match[str]) -> str:
    if not is_secret(match["name"]) or _PLAIN.match(match["value"]):
        return match[0]
    if match["value"].startswith((f"{MASK}&", f"{MASK}#")):
        return match[0]  # masked already, and the rest of the address stays
    return f"{match['define']}{match['name']}={_masked(match['value'])}"


def _masked(value: str) -> str:
    """In its quotes: what reads the text must still find its end."""
    return f"{value[0]}{MASK}{value[0]}" if value[0] in "\"'" else MASK


def _without_login(match: re.Match[str]) -> str:
    if match["login"] == "git" and "ssh" in match["scheme"]:
        return match[0]  # everybody's, and no password
    return f"{match['scheme']}{MASK}@"


def _without_spaced(match: re.Match[str]) -> str:
    return match["head"] + MASK if not match["name"] or is_secret(match["name"]) else match[0]


def _without_listed(value: str) -> str:
    """Words in quotes with commas between them: what stands behind an option is in the next one."""
    runs: list[list[re.Match[str]]] = []
    at = 0
    for begin in _LIST.finditer(value):
        if begin.end() < at:
            continue
        run, at = [], begin.end()
        while match := _LISTED.match(value, at):
            run.append(match)
            comma = _COMMA.match(value, match.end())
            at = comma.end() if comma else match.end()
        runs.append(run)
    pieces, end = [], 0
    for run in runs:
        given = [each["double"] or each["single"] or "" for each in run]
        if not any(each[:1] == "-" for each in given):
            continue
        for match, before, after in zip(run, given, words(given, str)):  # noqa: B905 - Python 3.9 has no strict
            if before != after:
                pieces += [value[end : match.start() + 1], after]
                end = match.end() - 1
    return "".join([*pieces, value[end:]])


def _without_short(match: re.Match[str]) -> str:
    return match["program"] + match["end"] + _as_words(match["rest"], _key(match["program"]))


def _key(program: str) -> str:
    """A program in a text as the table has it: `docker.exe --config x login` is `docker login`."""
    return _VERB.sub(" ", program)


def _as_words(value: str, program: str) -> str:
    """Text taken apart as a shell does, and put together again without the secrets."""
    parts = _SHELL_WORDS.findall(value)
    hidden = iter(_short_hidden(program, [each for each in parts if each.strip(" \t\n\\")]))
    return "".join(next(hidden) if each.strip(" \t\n\\") else each for each in parts)


def _short_hidden(program: str, given: Sequence[str]) -> list[str]:
    """A program's words, without what stands behind its short options."""
    options = SHORT_OPTIONS.get(program, ())
    apart = [each for each in options if " " not in each]
    joined = [each.partition(" ")[0] for each in options if len(each.partition(" ")[0]) == len("-p")]
    found, behind = [], False
    for word in given:
        name, equals, _ = word.partition("=")
        flags = _CURL_FLAGS.fullmatch(word) if program == "curl" else None
        option = next((each for each in joined if word.startswith(each) and word != each), "")
        if behind:
            found.append(MASK)
            behind = False
        elif word in apart or (flags and not flags["login"]):
            found.append(word)
            behind = True
        elif equals and name in apart and name.startswith("--"):
            found.append(f"{name}={MASK}")
        elif option:
            found.append(option + MASK)
        elif flags and _NAME_AND_PASSWORD.fullmatch(flags["login"]):
            found.append(word[: flags.start("login")] + MASK)
        else:
            found.append(_without_bare_logins(word))
    return found


def words(values: Sequence[str], hide: Callable[[str], str] = text) -> list[str]:
    """A command's: what stands behind an option for a secret is one. `env` and `sudo` start a second command."""
    given = list(values)
    started = 0
    for at in range(len(given)):
        program, end = _program(given[at : at + _BEFORE_VERB])
        if program in SHORT_OPTIONS:
            started += 1  # the first few commands have all words behind them; of many, each has a part
            until = len(given) if started <= _MOST_STARTED else at + end + _MOST_WORDS
            given[at + end : until] = _short_hidden(program, given[at + end : until])
    return [_word(before, value, hide) for before, value in zip(("", *given), given)]  # noqa: B905 - Python 3.9 has no strict


def _word(before: str, value: str, hide: Callable[[str], str]) -> str:
    """A word of a command behind another one."""
    option = _OPTION.fullmatch(before)
    if option and (option["single"] or is_secret(option["name"])):
        return MASK
    if before in LOGIN_OPTIONS and _NAME_AND_PASSWORD.fullmatch(value):
        return MASK
    value = _without_bare_logins(value)
    return hide(_LOGIN_OPTION.sub(lambda match: match["head"] + MASK, value) if value[:1] == "-" else value)


def _without_bare_logins(word: str) -> str:
    if "@" not in word or "://" in word:
        return word
    return _BARE_LOGIN.sub(lambda match: MASK + match[0][len(match["login"]) :], word)


def response_file(value: str, hide: Callable[[str], str] = text) -> str:
    """Words of a command in a file, each on a line or several: an option and its secret may stand on two lines."""
    parts = _SHELL_WORDS.findall(value)
    hidden = iter(words([each for each in parts if each.strip(" \t\n\\")], str))
    return hide("".join(next(hidden) if each.strip(" \t\n\\") else each for each in parts))


_MOST_STARTED, _MOST_WORDS = 8, 64
_BEFORE_VERB = 8  # words in which the second one of a program is looked for


def _program(values: Sequence[str]) -> tuple[str, int]:
    """The program of the table that a command begins with, and how many of its words that takes."""
    name = re.split(r"[\\/]", values[0])[-1] if values else ""
    if name.lower().endswith(".exe"):
        name = name[:-4].lower()
    for at, word in enumerate(values[1:] if name in _WITH_VERB else (), 2):
        if f"{name} {word}" in SHORT_OPTIONS:
            return f"{name} {word}", at
    return name, 1


def secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold some, by their names or by what they look like, and are long enough to be looked for."""
    return {
        name: value
        for name, value in environ.items()
        if len(value) >= _SHORTEST
        and (is_secret(name) or MASK in (_without_shapes(value), _WORD.sub(_of_chance, value)))
    }


def _has_one(value: str, parts: Sequence[str]) -> bool:
    """Whether a pattern that begins with one of these is worth compiling and trying: mostly it is not."""
    return any(each in value for each in parts)


def _without_shapes(value: str) -> str:
    return _SHAPES.sub(_of_shape, value) if _has_one(value, _HEADS) else value


def _of_shape(match: re.Match[str]) -> str:
    return match[0] if match[0].islower() and not any(map(str.isdigit, match[0])) else MASK


def _of_chance(match: re.Match[str]) -> str:
    return MASK if is_random(match["word"]) else match[0]


def known(value: str, environ: Mapping[str, str], *, random: bool = True) -> str:
    """Text that a program printed which had these variables: their secrets in it are made unreadable too."""
    return hiding(environ, random=random)(value)


def hiding(environ: Mapping[str, str], *, random: bool = True) -> Callable[[str], str]:
    """The same for many texts."""
    found = sorted(set(secrets(environ).values()), key=len, reverse=True)

    @functools.lru_cache(1 << 12)  # of an answer's texts most are there more than once
    def hide(value: str) -> str:
        for secret in found:
            value = value.replace(secret, MASK)
        return text(value, random=random)

    return hide


class Lines:
    """Text that comes line by line: a private key has many, and only its first and last say so."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._hide, self._in_key = hiding(environ), False

    def masked(self, line: str) -> str:
        if self._in_key:
            self._in_key = "-----END" not in line
            return MASK if self._in_key else line[line.index("-----END") :]
        found = _BLOCK.search(line + " ") if "PRIVATE KEY" in line else None
        self._in_key = found is not None and not found["end"]
        return self._hide(line)


def variable(name: str, value: str) -> str:
    return MASK if value and is_secret(name) else text(value)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: variable(name, value) for name, value in environ.items()}


def within(value: T, hide: Callable[[str], str] = text) -> T:
    """A value with all texts in it, at any depth. What holds no secret is the value itself."""
    found: Any = value
    if isinstance(found, str):
        hidden = hide(found)
        found = found if hidden == found else hidden  # of a class of its own, which knows its parts
    elif isinstance(found, (tuple, list)):
        changed = [within(each, hide) for each in found]
        if any(a is not b for a, b in zip(changed, found)):  # noqa: B905 - Python 3.9 has no strict
            found = type(found)(changed)
    elif isinstance(found, dict):
        found = {within(key, hide): within(each, hide) for key, each in found.items()}
    elif hasattr(found, "__struct_fields__"):  # a struct of msgspec, which the kit has not got
        fields = {name: within(getattr(found, name), hide) for name in found.__struct_fields__}
        if any(each is not getattr(found, name) for name, each in fields.items()):
            found = type(found)(**fields)
    result: T = found
    return result
