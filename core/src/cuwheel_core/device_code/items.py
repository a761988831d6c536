"""Files that may hold device code: in a folder, or in a wheel that is not unpacked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cuwheel_core.device_code.loose import HeaderCapture
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.support.buffer import Buffer, FileBuffer
from cuwheel_core.support.finding import Finding, finding

if TYPE_CHECKING:
    from cuwheel_core.wheel.zip_reader import Member, ZipReader


HEAD = 4096
# Text by name: a wheel has thousands, and opening each to see that it is none of ours takes longer
# than everything else.
_TEXT = (
    "c cc cfg cmake cpp cu cuh css csv cxx gz h hpp html hxx inc inl ipynb js json md pc png po proto pxd py pyc "
    "pyi pyx rst s sh svg toml txt typed xml yaml yml"
)
_TEXT_SUFFIXES = frozenset(f".{each}" for each in _TEXT.split())


class Item(Protocol):
    """A file of the target."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def head(self, count: int = HEAD) -> bytes:
        """Its first bytes, at little cost."""

    def open(self, advance: Callable[[int], None]) -> Buffer: ...


class FileItem(NamedTuple):
    path: str
    size: int
    place: Path

    def head(self, count: int = HEAD) -> bytes:
        try:
            with self.place.open("rb", buffering=0) as file:
                return file.read(count)
        except OSError as error:
            raise UnreadableError.from_os(error, self.place) from error

    def open(self, advance: Callable[[int], None]) -> Buffer:
        advance(self.size)
        return FileBuffer(self.place, self.path)


class ZipItem(NamedTuple):
    reader: ZipReader
    member: Member

    @property
    def path(self) -> str:
        return self.member.name

    @property
    def size(self) -> int:
        return self.member.size

    def head(self, count: int = HEAD) -> bytes:
        return self.reader.head(self.member, count)

    def open(self, advance: Callable[[int], None]) -> Buffer:
        return self.reader.open(self.member, advance, HeaderCapture())


def may_be_binary(name: str) -> bool:
    return os.path.splitext(name)[1].lower() not in _TEXT_SUFFIXES  # noqa: PTH122 - 12,000 times: Path is slow


def unread(path: str, error: CuwheelError) -> Finding:
    """Says of a file why it was not read; `error` may be about it as it was opened, by another path."""
    problem = error.problem if isinstance(error, (MalformedError, UnreadableError)) else error.message
    return finding("library-unreadable", problem, about=path, fix=error.fixes or None)


def foreign(path: str) -> Finding:
    return finding(
        "library-foreign", "was not read: a 32-bit or big-endian file, which current CUDA does not make", about=path
    )
