"""Opening files, and reading them at a place.

Nothing but the standard library of Python 3.9: it also travels in the kit.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

# Children do not inherit it, and no byte of it is changed on the way (Windows would translate ends of lines).
_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
NOT_A_LINK = getattr(os, "O_NOFOLLOW", 0)
AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # without waiting for who would write to a pipe
_LEAST = 1 << 16


# Whoever became another user has folders of the first on PATH that may not be searched: nothing is there for them.
# `Path` raises for these before Python 3.14.
def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def open_file(path: str | Path, flags: int, mode: int = 0o666, *, at: int | None = None) -> int:
    """A descriptor for bytes that children do not inherit. `at`: of the folder that a path starts from."""
    try:
        return os.open(path, flags | _ALWAYS, mode, dir_fd=at)
    except ValueError as error:  # a NUL in the name, as others' files may say it
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def open_plain(path: Path, flags: int = 0) -> IO[bytes]:
    """For reading what others wrote. A pipe in its place, or a link to a terminal, would be waited for without end."""
    handle = open_file(path, os.O_RDONLY | AT_ONCE | flags)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "is not a plain file", str(path))


def _seek_and_read(handle: int, count: int, offset: int) -> bytes:
    with SEEKING:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, count)


# Where there is no pread the position in the file is shared, hence the lock.
SEEKING = threading.Lock()
read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)


def read_up_to(file: IO[bytes], limit: int) -> bytes:
    """What is left of a file, at most `limit` bytes. Reading that many at once would ask for the memory first."""
    pieces, room = [], limit
    size = max(os.fstat(file.fileno()).st_size + 1, _LEAST)
    while room > 0 and (piece := file.read(min(room, size))):
        pieces.append(piece)
        room -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def head(path: Path, limit: int = 1 << 20) -> str:
    """Reads as much of a text file as one could want to look at; empty where it cannot be read."""
    try:
        with open_plain(path) as file:
            return read_up_to(file, limit).decode(errors="replace")
    except (OSError, ValueError):
        return ""
