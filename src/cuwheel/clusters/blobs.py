"""Files by the hash of their content, on either side; they travel in pieces, and count when the whole has its hash."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import files

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 4 << 20
_KEPT_S = 14 * 24 * 3600.0


def folder() -> Path:
    """On this machine, for all its workers."""
    return files.cache_folder() / "cluster" / "blobs"


def place(sha256: str) -> Path:
    return folder() / sha256


def has(sha256: str) -> bool:
    """Whether it is there and whole: a disk may have lost or changed it."""
    path = place(sha256)
    try:
        found = files.sha256(path)
    except UnreadableError:
        return False
    if found != sha256:
        path.unlink(missing_ok=True)
        return False
    with contextlib.suppress(OSError):
        os.utime(path)
    return True


def add(path: Path) -> str:
    """A file of ours, kept until it has been fetched."""
    sha256 = files.sha256(path)
    if not has(sha256):
        folder().mkdir(parents=True, exist_ok=True)
        files.copy(path, place(sha256))
    return sha256


def read_piece(sha256: str, offset: int) -> bytes:
    with place(sha256).open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)


def pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def receive(sha256: str, content: Iterator[bytes], to: Path) -> Path:
    """Under the name `to`, where the whole has its hash."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(to) as file:
        for piece in content:
            file.write(piece)
        file.flush()
        if files.sha256(Path(file.name)) != sha256:
            raise MalformedError(to.name, "arrived with another hash than its sender said")
    return to


def prune(now: float | None = None) -> None:
    """What nobody has used for two weeks."""
    limit = (now or time.time()) - _KEPT_S
    with contextlib.suppress(OSError):
        for path in folder().iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < limit:
                    path.unlink()
