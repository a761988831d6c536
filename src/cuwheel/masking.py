"""Secrets in variables, command lines, logs and addresses: kept and told as `***`.

By the names of variables and options, by logins in addresses, and by the shapes of tokens that are known. A secret
without any of these looks like other text. Code that keeps text (writes or returns it) calls `known`.
The lists are the only ones: those of the C shims are written from them. Nothing but the standard library of Python 3.9:
this also travels in the kit.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

MASK = "***"
_SHORTEST = 6  # of secrets that are looked for: a shorter one stands in ordinary words

# Names, in capitals, in parts between underscores (a dash is one); digits at the end of a part do not count.
# A part that is one of these, or its plural: HF_TOKEN, TOKEN_OF_MINE.
PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "AUTH", "CREDENTIAL", "COOKIE", "NETRC")
# The same of the last part alone: LLVM_NEW_PASS_MANAGER is none. DB_PASS, MYSQL_PWD, DJANGO_KEY, SENTRY_DSN.
LAST_PARTS = ("PASS", "PWD", "KEY", "DSN", "PSWD")
# A part that ends so, with two letters before it or more: PGPASSWORD, dbPassword, githubToken.
TAILS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIALS")
# The last part, where it ends so: SSHPASS, DBPWD.
LAST_TAILS = ("PASS", "PWD")
# Anywhere in the name.
INSIDE = (
    *("API_KEY", "APIKEY", "ACCESS_KEY", "ACCESSKEY", "PRIVATE_KEY", "PRIVATEKEY", "SIGNING_KEY", "SIGNINGKEY"),
    *("SECRET_KEY", "SECRETKEY", "SESSION_KEY", "CONNECTION_STRING", "CONNECTIONSTRING"),
)
# And what only looks like one: whole names, their beginnings, their ends, and words.
HARMLESS = ("PWD", "OLDPWD", "SSH_AUTH_SOCK", "JOBSERVER_AUTH")  # make's: descriptors, or a pipe
HARMLESS_HEADS = ("XDG_SESSION_",)
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
)
HARMLESS_WORDS = (
    *("BYPASS", "COMPASS", "ENCOMPASS", "OVERPASS", "UNDERPASS", "TRESPASS", "SURPASS", "MULTIPASS", "SUBPASS"),
    *("RENDERPASS", "FUNCTIONPASS", "MODULEPASS", "LOOPPASS", "ONEPASS", "TWOPASS", "FIRSTPASS", "SECONDPASS"),
)
# Short options that hold a secret, of the programs that have them: `joined` where it stands in the same word alone.
SHORT_OPTIONS = {
    "sshpass": ("-p",),
    "docker login": ("-p",),
    "podman login": ("-p",),
    "twine upload": ("-p",),
    "curl": ("-u", "-U", "--user", "--proxy-user", "-b", "--oauth2-bearer"),
    "unzip": ("-P",),
    "zip": ("-P",),
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
# Tokens that are known by how they begin, with how many letters follow at least.
TOKENS = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "npm_"), 20),
    **dict.fromkeys(("glpat-", "pypi-", "dckr_pat_", "AKIA", "ASIA", "sk-proj-", "sk_live_"), 16),
    **dict.fromkeys(("xoxa-", "xoxb-", "xoxp-", "xoxr-"), 10),
    "AIza": 30,
}

_QUOTED = r"\\{0,3}\"[^\"\n]{0,2048}\"|'[^'\n]{0,2048}'"
_VALUE = rf"(?:{_QUOTED}|[^\s\"';]{{1,2048}})"
# A password may have an @ in it: the login goes to the last one before the path.
_LOGIN = re.compile(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://)(?P<login>[^\s/\"'<>]{1,512})@")
_SHAPES = re.compile(
    r"\b(?:"
    + "|".join(rf"{re.escape(head)}[\w-]{{{least},2048}}" for head, least in TOKENS.items())
    + r"|eyJ[\w-]{10,4096}\.[\w-]{10,4096}\.[\w-]{5,4096})(?![\w-])",
    re.ASCII,
)
_BLOCK = re.compile(r"(?P<head>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[^-]{1,65536}", re.ASCII)
_BEARER = re.compile(r"(?P<head>\b(?:Bearer|Basic)\s{1,4})[\w.~+/=-]{8,4096}", re.IGNORECASE | re.ASCII)
_HEADER = re.compile(
    r"(?P<head>\b(?:(?:Proxy-)?Authorization|(?:Set-)?Cookie)\s{0,4}:\s{0,4}(?:(?:Bearer|Basic|Digest|Token|Negotiate)\s{1,4})?)"
    r"[^\s\"'][^\n\"']{0,4095}",
    re.IGNORECASE | re.ASCII,
)
_ASSIGNED = re.compile(rf"(?P<define>(?<![\w-])[-/]D|\b)(?P<name>[A-Za-z_][\w-]{{1,80}})=(?P<value>{_VALUE})", re.ASCII)
# JSON's and YAML's quoted names, and headers of HTTP: a bare `token:` is a compiler's word for other things.
_FIELD = re.compile(
    rf"(?P<head>(?:(?P<quote>[\"'])(?P<name>[A-Za-z_][\w-]{{1,80}})\\{{0,3}}(?P=quote)|\b(?P<header>[A-Za-z]{{1,40}}(?:-[A-Za-z]{{1,40}}){{1,4}}))"
    rf"\s{{0,4}}:\s{{0,4}})(?P<value>{_VALUE})",
    re.ASCII,
)
# `--password X`; of a single dash compilers have too many.
_OPTION = re.compile(r"--(?P<name>[A-Za-z][\w-]{1,80})", re.ASCII)
_SPACED = re.compile(
    rf"(?<![\w-])(?P<head>{_OPTION.pattern}[ \t]{{1,4}})(?:{_QUOTED}|[^\s\"'-][^\s\"']{{0,2047}})", re.ASCII
)
_EXE = r"(?:\.(?:exe|EXE))?\"?"  # as Windows names programs, and quotes those with blanks in their path
_PROGRAM = re.compile(
    rf"(?<![\w.-])(?P<program>{'|'.join(each.replace(' ', f'{_EXE} ') for each in SHORT_OPTIONS)})"
    rf"(?P<end>{_EXE})(?P<rest>[ \t][^\n|;]{{1,8192}})",
    re.ASCII,
)
_VERB = re.compile(rf"{_EXE} ")


@functools.lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as its name tells."""
    big = name.upper().replace("-", "_")
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


def text(value: str) -> str:
    """Text with secrets in it made unreadable."""
    value = _LOGIN.sub(_without_login, value) if "://" in value else value
    value = _BLOCK.sub(rf"\g<head>{MASK}", value) if "PRIVATE KEY" in value else value
    value = _SHAPES.sub(MASK, value)
    value = _BEARER.sub(rf"\g<head>{MASK}", _HEADER.sub(rf"\g<head>{MASK}", value))
    value = _PROGRAM.sub(_without_short, value)
    value = _SPACED.sub(lambda match: match["head"] + MASK if is_secret(match["name"]) else match[0], value)
    value = _FIELD.sub(
        lambda match: (
            match["head"] + _masked(match["value"]) if is_secret(match["name"] or match["header"]) else match[0]
        ),
        value,
    )
    return _ASSIGNED.sub(
        lambda match: (
            f"{match['define']}{match['name']}={_masked(match['value'])}" if is_secret(match["name"]) else match[0]
        ),
        value,
    )


def _masked(value: str) -> str:
    """In its quotes: what reads the text must still find its end."""
    return f"{value[0]}{MASK}{value[0]}" if value[0] in "\"'" else MASK


def _without_login(match: re.Match[str]) -> str:
    if match["login"] == "git" and "ssh" in match["scheme"]:
        return match[0]  # everybody's, and no password
    return f"{match['scheme']}{MASK}@"


def _without_short(match: re.Match[str]) -> str:
    words = re.findall(r"[ \t]+|\"[^\"]*\"?|'[^']*'?|[^\s\"']+", match["rest"])
    given = [each for each in words if each.strip()]
    hidden = iter(_short_hidden(_VERB.sub(" ", match["program"]), given))
    return match["program"] + match["end"] + "".join(next(hidden) if each.strip() else each for each in words)


def _short_hidden(program: str, given: Sequence[str]) -> list[str]:
    """A program's words, without what stands behind its short options."""
    options = SHORT_OPTIONS.get(program, ())
    apart = [each for each in options if " " not in each]
    found, behind = [], False
    for word in given:
        joined = next((each.partition(" ")[0] for each in options if word.startswith(each.partition(" ")[0])), None)
        if behind:
            found.append(MASK)
            behind = False
        elif word in apart:
            found.append(word)
            behind = True
        elif joined and len(joined) == len("-p") and len(word) > len(joined):
            found.append(joined + MASK)
        else:
            found.append(word)
    return found


def words(values: Sequence[str], hide: Callable[[str], str] = text) -> list[str]:
    """A command's: what stands behind an option for a secret is one."""
    given = [*values[:1], *_short_hidden(_program(values), values[1:])]
    return [
        MASK if (option := _OPTION.fullmatch(before)) and is_secret(option["name"]) else hide(value)
        for before, value in zip(("", *given), given)  # noqa: B905 - Python 3.9 has no strict
    ]


def _program(values: Sequence[str]) -> str:
    name = re.split(r"[\\/]", values[0])[-1] if values else ""
    if name.lower().endswith(".exe"):
        name = name[:-4].lower()
    with_verb = f"{name} {values[1]}" if len(values) > 1 else ""
    return with_verb if with_verb in SHORT_OPTIONS else name


def secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold some, and are long enough to be looked for."""
    return {name: value for name, value in environ.items() if len(value) >= _SHORTEST and is_secret(name)}


def known(value: str, environ: Mapping[str, str]) -> str:
    """Text that a program printed which had these variables: their secrets in it are made unreadable too."""
    for secret in sorted(secrets(environ).values(), key=len, reverse=True):
        value = value.replace(secret, MASK)
    return text(value)


def variable(name: str, value: str) -> str:
    return MASK if value and is_secret(name) else text(value)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: variable(name, value) for name, value in environ.items()}


def within(value: T, hide: Callable[[str], str] = text) -> T:
    """A value with all texts in it, at any depth."""
    found: Any = value
    if isinstance(found, str):
        found = hide(found)
    elif isinstance(found, (tuple, list)):
        found = type(found)(within(each, hide) for each in found)
    elif isinstance(found, dict):
        found = {key: within(each, hide) for key, each in found.items()}
    elif hasattr(found, "__struct_fields__"):  # a struct of msgspec, which the kit has not got
        found = type(found)(**{name: within(getattr(found, name), hide) for name in found.__struct_fields__})
    result: T = found
    return result
