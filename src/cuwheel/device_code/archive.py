"""Static archives (.a): their members, each an object file of its own."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import elf
from cuwheel.errors import MalformedError
from cuwheel.support.buffer import SliceBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.image import Section
    from cuwheel.device_code.relocations import ElfPointers
    from cuwheel.support.buffer import Buffer

MAGIC = b"!<arch>\n"
_HEADER = 60
_LONG_NAMES_LIMIT = 1 << 28


class Member(NamedTuple):
    buffer: SliceBuffer
    offset: int


def members(buffer: Buffer) -> Iterator[Member]:
    """The ELF members; symbol tables and whatever else there is are passed over."""
    long_names = b""
    at = len(MAGIC)
    while at + _HEADER <= buffer.size:
        header = buffer.read(at, _HEADER)
        size = _number(buffer, header[48:58])
        start = at + _HEADER
        name = header[:16].rstrip().decode("utf-8", "replace")
        if header[58:60] != b"`\n":
            raise MalformedError(buffer.name, f"no archive member at {at:#x}")
        if name == "//" and size <= _LONG_NAMES_LIMIT:
            long_names = buffer.read(start, size)
        elif size >= elf.HEADER_SIZE and buffer.read(start, 4) == elf.MAGIC:
            yield Member(SliceBuffer(buffer, start, size, f"{buffer.name}({_name(name, long_names)})"), start)
        at = start + size + size % 2


class Pointers:
    """The pointers of all members, found by where in the archive they stand."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._of: list[ElfPointers] = []

    def add(self, offset: int, pointers: ElfPointers) -> None:
        self._starts.append(offset)
        self._of.append(pointers)

    def target(self, slot: int, value: int) -> int | None:
        index = bisect.bisect_right(self._starts, slot) - 1
        if index < 0:
            return None
        found = self._of[index].target(slot - self._starts[index], value)
        return None if found is None else found + self._starts[index]


def shifted(sections: Sequence[Section], by: int) -> tuple[Section, ...]:
    return tuple(each._replace(offset=each.offset + by) for each in sections)


def _number(buffer: Buffer, text: bytes) -> int:
    stripped = text.strip()
    if not stripped.isdigit():
        raise MalformedError(buffer.name, f"an archive member's size is {text!r}")
    return int(stripped)


def _name(name: str, long_names: bytes) -> str:
    if name.startswith("/") and name[1:].isdigit():
        start = int(name[1:])
        return long_names[start : start + 256].split(b"/\n", 1)[0].decode("utf-8", "replace")
    return name.rstrip("/")
