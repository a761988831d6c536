"""Secrets in variables, command lines and addresses: told as `***`.

By the names of variables, by logins in addresses, and by the shapes of tokens that are known. A secret without any of
these cannot be told from other text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MASK = "***"
_SHORTEST = 6  # of secrets that are looked for: a shorter one stands in ordinary words

_NAMES = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|AUTH|CREDENTIALS?|COOKIE|SESSION_KEY|NETRC)S?(?:_|$)"
    r"|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SIGNING_?KEY|(?:^|_)KEY$|CONNECTION_STRING|(?:^|_)DSN$",
    re.IGNORECASE | re.ASCII,
)
_HARMLESS = re.compile(r"(?:PWD|OLDPWD|SSH_AUTH_SOCK|XDG_SESSION_\w+|\w*_(?:FILE|PATH|DIR))", re.IGNORECASE | re.ASCII)
_LOGIN = re.compile(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://)[^\s/@\"']{1,512}@")
_SHAPES = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{16,255}|pypi-[\w-]{16,2048}|hf_[A-Za-z0-9]{20,255}"
    r"|AKIA[0-9A-Z]{16}|xox[abpr]-[\w-]{10,255}|npm_[A-Za-z0-9]{20,255}"
    r"|eyJ[\w-]{10,4096}\.[\w-]{10,4096}\.[\w-]{5,4096})(?![\w-])",
    re.ASCII,
)
_BEARER = re.compile(r"(?P<head>\b(?:Bearer|Basic)\s{1,4})[\w.~+/=-]{8,4096}", re.IGNORECASE | re.ASCII)
# make's --jobserver-auth names descriptors, and is no secret.
_ASSIGNED = re.compile(
    r"(?P<define>(?<![\w-])-D|(?<!--jobserver-)\b)(?P<name>[A-Za-z_][A-Za-z0-9_]{1,80})=(?P<value>[^\s\"';]{1,2048})",
    re.ASCII,
)
# `--password X`; of a single dash compilers have too many.
_OPTION = re.compile(r"--(?P<name>[A-Za-z][\w-]{1,80})", re.ASCII)
_SPACED = re.compile(rf"(?<![\w-])(?P<head>{_OPTION.pattern}[ \t]{{1,4}})[^\s\"'-][^\s\"']{{0,2047}}", re.ASCII)


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as its name tells."""
    return _NAMES.search(name) is not None and _HARMLESS.fullmatch(name) is None


def text(value: str) -> str:
    """Text with secrets in it made unreadable."""
    value = _LOGIN.sub(rf"\g<scheme>{MASK}@", value)
    value = _SHAPES.sub(MASK, value)
    value = _BEARER.sub(rf"\g<head>{MASK}", value)
    value = _SPACED.sub(lambda match: match["head"] + MASK if _is_secret_option(match["name"]) else match[0], value)
    return _ASSIGNED.sub(
        lambda match: f"{match['define']}{match['name']}={MASK}" if is_secret(match["name"]) else match[0], value
    )


def words(values: Sequence[str], hide: Callable[[str], str] = text) -> list[str]:
    """A command's: what stands behind an option for a secret is one."""
    return [
        MASK if (option := _OPTION.fullmatch(before)) and _is_secret_option(option["name"]) else hide(value)
        for before, value in zip(("", *values), values)  # noqa: B905 - the last has none behind it; Python 3.9 has no strict
    ]


def _is_secret_option(name: str) -> bool:
    return is_secret(name.replace("-", "_"))


def known(value: str, environ: Mapping[str, str]) -> str:
    """Text that a program printed which had these variables: their secrets in it are made unreadable too."""
    for name, secret in environ.items():
        if is_secret(name) and len(secret) >= _SHORTEST:
            value = value.replace(secret, MASK)
    return text(value)


def variable(name: str, value: str) -> str:
    return MASK if value and is_secret(name) else text(value)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: variable(name, value) for name, value in environ.items()}
