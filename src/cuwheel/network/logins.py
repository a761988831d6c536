"""Which login a server gets: from the address, the index's settings, netrc, the keyring, uv's own store."""

from __future__ import annotations

import netrc
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError
from cuwheel.network import addresses
from cuwheel.network.addresses import Login
from cuwheel.network.tool_settings import home
from cuwheel.support import extras, log, process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.network.index_settings import Settings

_ASK_S = 30.0
_asked: dict[tuple[str, ...], str] = {}


def at_once(url: str, settings: Settings) -> Login | None:
    """What is sent with the first request: pip and uv do not wait to be asked either."""
    for found in (addresses.remembered(url), settings.index_login(url), _from_netrc(url, settings)):
        if found and found.password is None:  # a name alone: its password is in the keyring, or it is a token
            return next(_from_keyring(url, settings, found.username), found)
        if found:
            return found
    return None


def on_refusal(url: str, settings: Settings, sent: Login | None) -> Iterator[Login]:
    """What is tried when a server does not let us in: each in turn."""
    username = sent.username if sent else None
    yield from (each for each in _from_keyring(url, settings, username) if each != sent)
    yield from (each for each in _from_uv(url, settings, username) if each != sent)


def _from_netrc(url: str, settings: Settings) -> Login | None:
    named = settings.environ.get("NETRC")
    for path in [Path(named)] if named else [home(settings.environ) / name for name in (".netrc", "_netrc")]:
        try:
            found = netrc.netrc(path).authenticators(addresses.origin(url)[1])
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError) as error:
            if not isinstance(error, FileNotFoundError):
                log.debug("%s is not read: %s", path, error)
            continue
        if found:
            return Login(found[0] or "", found[2])
    return None


def _from_keyring(url: str, settings: Settings, username: str | None) -> Iterator[Login]:
    """By the names that pip and uv look under: the index, with a slash or without; the server."""
    program = settings.keyring
    if program is None:
        return
    parts = addresses.split(url)
    there = [each.url for each in settings.indexes if addresses.origin(each.url) == addresses.origin(url)]
    written = [form for each in there for form in (each, each.rstrip("/") + "/", each.rstrip("/"))]
    for service in dict.fromkeys([*written, f"{parts.scheme}://{parts.netloc}", parts.netloc]):
        if username:
            if password := _asked_of([program, "get", service, username], settings):
                yield Login(username, password)
        elif (answer := _asked_of([program, "--mode", "creds", "get", service], settings)) and "\n" in answer:
            name, password = answer.split("\n", 1)
            yield Login(name, password)


def _from_uv(url: str, settings: Settings, username: str | None) -> Iterator[Login]:
    """What `uv auth login` stored."""
    program = extras.program("uv", path=settings.environ.get("PATH"))
    if program is None:
        return
    parts = addresses.split(url)
    options = ["--username", username] if username else []
    command = [program, "--quiet", "auth", "token", *options, f"{parts.scheme}://{parts.netloc}"]
    if token := _asked_of(command, settings):
        yield Login(username or "__token__", token)


def _asked_of(command: list[str], settings: Settings) -> str:
    """Once a process: a keyring may ask its user to unlock it."""
    if (key := tuple(command)) not in _asked:
        environ = {**settings.environ, "PYTHONIOENCODING": "utf-8"}
        try:
            done = process.run(command, timeout=_ASK_S, check=False, env=environ)
            _asked[key] = done.stdout.strip("\r\n") if done.status == 0 else ""
        except CuwheelError as error:
            log.debug("%s: %s", command[0], error.message)
            _asked[key] = ""
    return _asked[key]
