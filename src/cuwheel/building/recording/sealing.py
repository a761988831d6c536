"""Secrets taken out of what a build has written into its record."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from cuwheel.building.recording import calls
from cuwheel.errors import UnreadableError
from cuwheel.support import files, masking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    _Hide = Callable[[str], str]

_PIECE = 1 << 22
# Whose options stand in a word of their own, before the secret: only the list of words tells.
_PROGRAMS = tuple({f'{each.split()[0]}"'.encode() for each in masking.SHORT_OPTIONS})


def mask(folder: Path, environ: Mapping[str, str]) -> None:
    """All files that the shims wrote; `environ`: of the command, whose secrets may stand in anything that it printed.

    A file that holds no secret is not touched.
    """
    secrets = masking.secrets(environ)
    hide = masking.hiding(secrets)
    escaped = any(set('"\\') & set(each) or not (each.isascii() and each.isprintable()) for each in secrets.values())
    _change(folder / calls.CALLS_FILE, partial(_masked_events, hide, escaped))
    for path in (path for name in calls.RECORD_FOLDERS for path in (folder / name).glob("*")):
        _change(path, partial(_masked_text, hide))


def _change(path: Path, change: Callable[[list[bytes]], bytes]) -> None:
    """Written beside, then renamed. A secret that goes on behind the end of a line is none of those that are known."""
    with contextlib.suppress(OSError, UnreadableError):
        if path.is_symlink() or not path.is_file() or not any(change(each) != b"".join(each) for each in _pieces(path)):
            return
        with files.replacing(path) as target:
            target.writelines(map(change, _pieces(path)))


def _pieces(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        while lines := file.readlines(_PIECE):
            yield lines


def _masked_text(hide: _Hide, lines: list[bytes]) -> bytes:
    return hide(b"".join(lines).decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _masked_events(hide: _Hide, escaped: bool, lines: list[bytes]) -> bytes:  # noqa: FBT001 - by `partial` alone
    return b"".join(_masked_event(hide, line, escaped=escaped) for line in lines)


def _masked_event(hide: _Hide, line: bytes, *, escaped: bool) -> bytes:
    """Inside its strings: a mask across a quote would make the line unreadable.

    `escaped`: JSON writes some secret otherwise than it is, so that only its strings tell.
    """
    if not escaped and not any(each in line for each in _PROGRAMS) and _masked_text(hide, [line]) == line:
        return line
    try:
        event = json.loads(line)
        hidden = _masked(hide, event)
        return line if hidden == event else json.dumps(hidden).encode("ascii") + b"\n"
    except (ValueError, RecursionError):
        return b"\n"  # cut short by a crash, with a secret in it


def _masked(hide: _Hide, value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return masking.words(value, hide)
    if isinstance(value, list):
        return [_masked(hide, each) for each in value]
    if isinstance(value, dict):
        return {key: _masked(hide, each) for key, each in value.items()}
    return value
