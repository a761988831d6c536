"""Addresses as cuwheel keeps and shows them: without logins, which stay in this process's memory.

A URL is stripped where it comes in, by `plain`, so that no file, message or report can hold a password by accident.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, unquote_to_bytes, urlsplit, urlunsplit

from cuwheel.errors import NetworkError

_LONGEST_NAME = 240  # bytes; file systems allow 255, and a download has a suffix while it is not complete
_DRIVE = re.compile(r"/[A-Za-z]:")
_PORTS = {"http": 80, "https": 443}
_seen: dict[str, Login] = {}  # by address


@dataclass(frozen=True, slots=True)
class Login:
    """Never shown: only the address that it belongs to is."""

    username: str = field(repr=False)
    password: str | None = field(default=None, repr=False)


def plain(url: str) -> str:
    """The address without its login, which is remembered for requests to that server."""
    address, login = parted(url)
    if login:
        _seen[address] = login
    return address


def parted(url: str) -> tuple[str, Login | None]:
    """A URL as its plain address and the login that stood in it. Folders and names are returned as they are."""
    if "://" not in url or "@" not in url:
        return url, None
    parts = split(url)
    user_info, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    username, colon, password = user_info.partition(":")
    login = Login(unquote(username), unquote(password) if colon else None)
    return urlunsplit(parts._replace(netloc=host)), login if username or password else None


def split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # which is only looked at when it is asked for
    except ValueError as error:
        raise NetworkError("an address", f"is not a valid URL: {error}") from error
    return parts


def with_login(url: str, login: Login | None) -> str:
    """For a program that takes a login nowhere else: handed over in its environment, never kept."""
    if login is None:
        return url
    password = "" if login.password is None else f":{quote(login.password, safe='')}"
    parts = split(url)
    return urlunsplit(parts._replace(netloc=f"{quote(login.username, safe='')}{password}@{parts.netloc}"))


def remembered(url: str) -> Login | None:
    """The login that came with this address, or with another on the same server."""
    return nearest(url, _seen.items())


def nearest(url: str, logins: Iterable[tuple[str, Login]]) -> Login | None:
    """Picks the login whose address has most of a URL's path, among those for its server."""
    there = [(address, login) for address, login in logins if origin(address) == origin(url)]
    return max(there, key=lambda each: _common(split(each[0]).path, split(url).path), default=("", None))[1]


def _common(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(one.strip("/").split("/"), other.strip("/").split("/"), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what a login is for."""
    parts = split(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme, 0)


def file_name(url: str) -> str:
    """The name under which a file is kept, from what a server calls it: never a path, whatever is encoded in it."""
    path = split(url).path if "://" in url else url
    name = unquote(path).replace("\\", "/").rsplit("/", maxsplit=1)[-1]
    if not is_file_name(name):
        raise NetworkError(parted(url)[0], f"ends in {name!r}, which is not a valid file name")
    return name


def is_file_name(name: str) -> bool:
    """Whether it names a file in a folder, and nothing outside of it."""
    return (
        name not in ("", ".", "..")
        and name == Path(name).name
        and "\\" not in name
        and name.isprintable()
        and len(name.encode(errors="surrogateescape")) <= _LONGEST_NAME
    )


def local_path(url: str) -> Path | None:
    """The path that a file: URL means; None for what is on a server."""
    if url.startswith("file:"):
        parts = split(url)
        path = os.fsdecode(unquote_to_bytes(parts.path))  # names of files need not be text
        if os.name == "nt":  # file:///C:/folder and file://server/share/folder
            path = path[1:] if _DRIVE.match(path) else f"//{parts.netloc}{path}" if parts.netloc else path
        return Path(path)
    return Path(url) if url and "://" not in url else None
