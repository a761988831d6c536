"""A library without the debug information of its host code, which no process loads and which may be most of the file.

What is loaded stays byte for byte where it is: only what lies behind the last segment closes up. The headers of the
sections that go stay, empty, so that the numbers of all sections, which symbols refer to, remain what they were.
"""

from __future__ import annotations

import os
import struct
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from cuwheel.changes.binaries import payloads
from cuwheel.changes.binaries.draft import round_up
from cuwheel.device_code import elf as elf_file
from cuwheel.device_code.elf import SHT_NOBITS
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import system_calls
from cuwheel.support.buffer import Buffer, FileBuffer

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_CHUNK = 1 << 20


class _Moved(NamedTuple):
    """Bytes of the old file, and where they are in the new one."""

    offset: int
    place: int
    size: int


class _Layout(NamedTuple):
    """`head`: bytes from the start that stay where they are, but for the file's header."""

    header: bytes
    head: int
    moved: tuple[_Moved, ...]
    table: bytes
    table_at: int

    @property
    def size(self) -> int:
        return self.table_at + len(self.table)


def strip_host_debug(source: Path, target: Path, name: str) -> int | None:
    """Write it to `target`, beside it first, and tell its size; None, and nothing is written, where it has none.

    Also where the file is not laid out as linkers do it, such as one that patchelf has put a segment behind.
    """
    with closing(FileBuffer(source, name)) as buffer:
        layout = _laid_out(buffer)
    if layout is None:
        return None
    try:
        handle, made = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".cuwheel", dir=target.parent)
        beside = Path(made)
        try:
            with os.fdopen(handle, "w+b") as file, source.open("rb") as original:
                system_calls.set_mode(handle, os.fstat(original.fileno()).st_mode & 0o7777)
                for each in (_Moved(0, 0, layout.head), *layout.moved):
                    original.seek(each.offset)
                    file.seek(each.place)
                    for start in range(0, each.size, _CHUNK):
                        file.write(original.read(min(_CHUNK, each.size - start)))
                file.seek(layout.table_at)
                file.write(layout.table)
                file.seek(0)
                file.write(layout.header)
                file.flush()
                _must_be_same(original.fileno(), handle, layout, name)
            system_calls.rename_over(beside, target)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
    except OSError as error:
        raise UnreadableError.from_os(error, target) from error
    return layout.size


def _laid_out(buffer: Buffer) -> _Layout | None:
    try:
        elf = elf_file.read_elf(buffer)
        header = list(_HEADER.unpack(buffer.read(0, _HEADER.size)))
        shoff, entry, count = header[6], header[11], header[12]
        rows = [list(_SECTION.unpack(buffer.read(shoff + number * entry, _SECTION.size))) for number in range(count)]
    except (MalformedError, struct.error):
        return None
    debug = {each.number for each in elf.sections() if each.role == "debug" and each.size and not each.address}
    loaded = [each.offset + each.file_size for each in elf.segments]
    head = max([_HEADER.size, header[5] + header[9] * header[10], *loaded])
    stored = [(number, row) for number, row in enumerate(rows) if row[1] not in (0, SHT_NOBITS) and row[5]]
    behind = sorted((row[4], number) for number, row in stored if row[4] >= head)
    regular = entry == _SECTION.size and count == len(elf.headers) and shoff >= head
    inside = any(row[4] < head < row[4] + row[5] for _, row in stored)
    if not regular or inside or not debug or not debug <= {number for _, number in behind}:
        return None
    end = head
    moved: list[_Moved] = []
    for offset, number in behind:
        row = rows[number]
        if number in debug:
            row[1], row[4], row[5] = SHT_NOBITS, end, 0
            continue
        place = round_up(end, max(row[8], 1))
        moved.append(_Moved(offset, place, row[5]))
        row[4], end = place, place + row[5]
    header[6] = table_at = round_up(end, 8)
    table = b"".join(_SECTION.pack(*row) for row in rows)
    if any(each.offset + each.size > buffer.size for each in moved) or table_at + len(table) >= buffer.size:
        return None
    return _Layout(_HEADER.pack(*header), head, tuple(moved), table, table_at)


def _must_be_same(old: int, new: int, layout: _Layout, name: str) -> None:
    """All that stays is what it was, but for the header's word of where the table of sections is."""
    start = len(layout.header)
    for each in (_Moved(start, start, layout.head - start), *layout.moved):
        if not payloads.same_bytes(old, each.offset, new, each.place, each.size):
            raise MalformedError(name, f"what was at {each.offset:#x} is not the same without debug information")
