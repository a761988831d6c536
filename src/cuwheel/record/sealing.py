"""Secrets taken out of what a build has written into its record."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from cuwheel import masking
from cuwheel.record import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PIECE = 1 << 22


def mask(folder: Path) -> None:
    """All files that the shims wrote. One that holds no secret is not touched."""
    _change(folder / layout.CALLS, _masked_events)
    for path in (path for name in layout.FOLDERS for path in (folder / name).glob("*")):
        _change(path, _masked_text)


def _change(path: Path, change: Callable[[list[bytes]], bytes]) -> None:
    """Written beside, then renamed. A secret that goes on behind the end of a line is none of those that are known."""
    beside = path.with_name(f".{path.name}.new")
    with contextlib.suppress(OSError):
        if path.is_symlink() or not path.is_file() or not any(change(each) != b"".join(each) for each in _pieces(path)):
            return
        with beside.open("wb") as target:
            target.writelines(map(change, _pieces(path)))
        beside.replace(path)


def _pieces(path: Path) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        while lines := file.readlines(_PIECE):
            yield lines


def _masked_text(lines: list[bytes]) -> bytes:
    return masking.text(b"".join(lines).decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _masked_events(lines: list[bytes]) -> bytes:
    return b"".join(map(_masked_event, lines))


def _masked_event(line: bytes) -> bytes:
    """Inside its strings: a mask across a quote would make the line unreadable."""
    if _masked_text([line]) == line:
        return line
    try:
        return json.dumps(_masked(json.loads(line))).encode("ascii") + b"\n"
    except (ValueError, RecursionError):
        return b"\n"  # cut short by a crash, with a secret in it


def _masked(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return masking.text(value)
    if isinstance(value, list):
        return [_masked(each) for each in value]
    if isinstance(value, dict):
        return {key: _masked(each) for key, each in value.items()}
    return value
