"""A library without the debug information of its host code, which no process loads and which may be most of the file.

What is loaded stays byte for byte where it is: only what lies behind the last segment closes up. The headers of the
sections that go stay, empty, so that the numbers of all sections, which symbols refer to, remain what they were.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import payloads
from cuwheel.changes.binaries.draft import NewFile, Piece, round_up
from cuwheel.device_code import elf as elf_file
from cuwheel.device_code.elf import SHT_NOBITS
from cuwheel.errors import MalformedError
from cuwheel.support.buffer import Buffer, FileBuffer

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def strip_host_debug(source: Path, target: Path, name: str) -> int | None:
    """Write it to `target`, beside it first, and tell its size; None, and nothing is written, where it has none.

    Also where the file is not laid out as linkers do it, such as one that patchelf has put a segment behind.
    """
    with closing(FileBuffer(source, name)) as buffer:
        made = _laid_out(buffer)
    if made is None:
        return None
    pieces = made.pieces

    def must_be_same(beside: Path) -> None:
        if wrong := payloads.first_differing(source, beside, pieces):
            raise MalformedError(name, f"what was at {wrong.offset:#x} is not the same without debug information")

    payloads.write_beside(source, target, made, None, must_be_same)
    return made.size


def _laid_out(buffer: Buffer) -> NewFile | None:
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
    pieces = [Piece(_HEADER.size, head - _HEADER.size, _HEADER.size)]
    for offset, number in behind:
        row = rows[number]
        if number in debug:
            row[1], row[4], row[5] = SHT_NOBITS, end, 0
            continue
        place = round_up(end, max(row[8], 1))
        pieces.append(Piece(place, row[5], offset))
        row[4], end = place, place + row[5]
    header[6] = table_at = round_up(end, 8)
    table = b"".join(_SECTION.pack(*row) for row in rows)
    size = table_at + len(table)
    if any(each.offset + each.size > buffer.size for each in pieces) or size >= buffer.size:
        return None
    head_and_table = Piece(0, _HEADER.size, data=_HEADER.pack(*header)), Piece(table_at, len(table), data=table)
    return NewFile(size, (*pieces, *head_and_table))
