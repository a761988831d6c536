"""Paths and files that a stranger's folder or archive names: never outside it, never through a link out of it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cuwheel import system_calls
from cuwheel.errors import MalformedError, UnreadableError

if TYPE_CHECKING:
    from pathlib import Path


def inside(root: Path, name: str, source: Path) -> Path:
    """The file below `root` that `source` calls `name`; `root` is resolved.

    Links on the way may lead elsewhere below the root. The file itself may be a link: its user acts on the
    link, not on what it names.
    """
    path = root / name
    parts = name.split("/")
    if "\0" in name or not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise MalformedError(source, f"points outside its folder: {name!r}")
    if not leads_inside(root, path.parent):
        raise MalformedError(source, f"has a link that leads out of its folder: {name!r}")
    return path


def leads_inside(root: Path, path: Path) -> bool:
    """Whether `path`, with all links followed, is `root` or below it; `root` is resolved."""
    try:
        found = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return False
    return found == root or root in found.parents


def must_be_a_folder(path: Path) -> bool:
    """Whether it is there; an error where it is a link or a file, which would lead changes elsewhere."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    if not stat.S_ISDIR(mode):
        raise MalformedError(path, "is not a folder of its own", hint=f"look at it, then remove it: {path}")
    return True


def open_plain(path: Path, flags: int, mode: int = 0o644) -> int:
    """A descriptor of a file that has this name alone: not a link, not a pipe, not another file's second name."""
    try:
        handle = system_calls.open_file(path, flags | system_calls.NOT_A_LINK | system_calls.AT_ONCE, mode)
    except OSError as error:
        if path.is_symlink():
            raise MalformedError(path, "is a link, where a plain file is expected") from error
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        what = "has other names (hard links)" if stat.S_ISREG(status.st_mode) else "is not a plain file"
        raise MalformedError(path, what, hint=f"look at it, then remove it: {path}")
    return handle
