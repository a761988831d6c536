"""A library without what debuggers alone read of its host code, which no process loads: it may be most of the file.

What is loaded stays byte for byte at its address; in the file it closes up, a segment by whole pages. The headers of
the sections that go stay, empty, so that the numbers of all sections remain what they were.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import payloads
from cuwheel.changes.binaries.draft import NewFile, Piece, round_up
from cuwheel_core.device_code import elf as elf_file
from cuwheel_core.device_code.elf import PT_LOAD, SHT_NOBITS
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import Buffer, FileBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PROGBITS, _NOBODYS = 1, [0] * 10
_MOST_PADDING = 4096


def strip_host_debug(source: Path, target: Path, name: str) -> int | None:
    """Write it to `target`, beside it first, and tell its size; None, and nothing is written, where it has none.

    Also where the file is not laid out as linkers and patchelf do it.
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


class _Run(NamedTuple):
    """Bytes that stay together, at a place that is as before modulo `alignment`: what the loader maps at once, or a
    section that it does not map.
    """

    start: int
    end: int
    alignment: int
    section: int = -1


def _laid_out(buffer: Buffer) -> NewFile | None:
    try:
        elf = elf_file.read_elf(buffer)
        header = list(_HEADER.unpack(buffer.read(0, _HEADER.size)))
        phoff, shoff, phsize, phnum, entry, count = header[5], header[6], *header[9:13]
        rows = [list(_SECTION.unpack(buffer.read(shoff + number * entry, _SECTION.size))) for number in range(count)]
        segments = [list(_SEGMENT.unpack(buffer.read(phoff + number * phsize, phsize))) for number in range(phnum)]
    except (MalformedError, struct.error):
        return None
    gone = {each.number for each in elf.sections() if each.role == "debug" and each.size and not each.address}
    loads = _loads(segments)
    ends = {each.start: each.end for each in loads}
    first = sorted(ends)

    def is_mapped(offset: int) -> bool:
        return bool(index := bisect_right(first, offset)) and offset < ends[first[index - 1]]

    apart = [
        _Run(row[4], row[4] + row[5], row[8], number)
        for number, row in enumerate(rows)
        if row[1] not in (0, SHT_NOBITS) and row[5] and not is_mapped(row[4])
    ]
    runs = sorted([*loads, *apart])
    regular = entry == _SECTION.size and count == len(elf.headers) and runs and runs[0].start == 0
    if not regular or not gone or not gone <= {each.section for each in apart}:
        return None
    behind = max(runs[-1].end, shoff + entry * count)
    most = _MOST_PADDING + 2 * entry * count  # a table of sections, and the one that patchelf has left there
    if any(not 0 <= other.start - one.end <= most for one, other in pairwise(runs)) or not _is_padding(buffer, behind):
        return None  # one over the other, or something of somebody's between them
    end, places = 0, list[tuple[_Run, int]]()
    for run in runs:
        if run.section in gone:
            name, kind, *_, alignment, each = rows[run.section]
            is_data = kind == _PROGBITS  # an empty table of symbols irritates readers: their header is nobody's then
            rows[run.section][:] = [name, SHT_NOBITS, 0, 0, end, 0, 0, 0, alignment, each] if is_data else _NOBODYS
            continue
        places.append((run, end + (run.start - end) % max(run.alignment, 1)))
        end = places[-1][1] + run.end - run.start

    starts = [run.start for run, _ in places]

    def moved(offset: int) -> int:
        """Where that is which was there; of nothing at all, behind a segment, as far behind it."""
        run, place = places[max(0, bisect_right(starts, offset) - 1)]
        return offset - run.start + place

    for number, row in enumerate(rows):
        row[4] = row[4] if number in gone else moved(row[4])
    for segment in segments:
        _, _, offset, address, _, stored, _, alignment = segment
        # Of what is nowhere in the file the loader asks only that its offset fits its address.
        segment[2] = moved(offset) if stored else address % max(alignment, 1)
    tables_stay = any(run.start <= shoff and shoff + entry * count <= run.end for run in loads)  # patchelf's do
    header[5], header[6] = moved(phoff), moved(shoff) if tables_stay else round_up(end, 8)
    program_headers = b"".join(_SEGMENT.pack(*each) for each in segments)
    table = b"".join(_SECTION.pack(*row) for row in rows)
    written = [
        Piece(0, _HEADER.size, data=_HEADER.pack(*header)),
        Piece(header[5], len(program_headers), data=program_headers),
        Piece(header[6], len(table), data=table),
    ]
    size = max(end, header[6] + len(table))
    if size >= buffer.size or not any(run.start <= phoff and phoff + phsize * phnum <= run.end for run in loads):
        return None
    return NewFile(size, (*_without(places, written), *written))


def _is_padding(buffer: Buffer, start: int) -> bool:
    """Whether nobody has put anything behind the file: patchelf leaves a zero there."""
    return 0 <= buffer.size - start <= _MOST_PADDING and not any(buffer.read(start, buffer.size - start))


def _loads(segments: Iterable[Sequence[int]]) -> list[_Run]:
    """Those that lie over one another as one."""
    found: list[_Run] = []
    mapped = [_Run(each[2], each[2] + each[5], each[7]) for each in segments if each[0] == PT_LOAD and each[5]]
    for run in sorted(mapped):
        if found and run.start < found[-1].end:
            last = found.pop()
            found.append(_Run(last.start, max(last.end, run.end), max(last.alignment, run.alignment)))
        else:
            found.append(run)
    return found


def _without(places: Iterable[tuple[_Run, int]], written: Iterable[Piece]) -> Iterator[Piece]:
    """The runs where they go, but for what is written anew over them."""
    anew = sorted((each.place, each.place + each.size) for each in written)
    for run, place in places:
        at, end = place, place + run.end - run.start
        for first, last in anew:
            if at <= first and last <= end:
                yield from [Piece(at, first - at, at - place + run.start)] * (first > at)
                at = last
        yield from [Piece(at, end - at, at - place + run.start)] * (end > at)
