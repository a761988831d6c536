"""Which bytes of a PE file can go once its device code is packed, and how the loader is told. Pure.

Addresses stay. Behind its bytes a section may have more memory, which the loader fills with zeros: so what nobody needs
at a section's end goes by itself, and in its middle by making two sections of it. The table of sections has room up to
where the first section is loaded: the headers grow, and everything behind them moves in the file. Device code that has
grown goes into a section more, behind all others in the file and in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import loader
from cuwheel.changes.binaries.geometry import Cut, Shift, down, up, without
from cuwheel.changes.binaries.pe_rules import MOST_SECTIONS
from cuwheel.device_code.pe import CERTIFICATES, EXECUTABLE, SECTION
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.changes.binaries.emptied import Emptied
    from cuwheel.changes.binaries.fatbin_writer import Packed
    from cuwheel.changes.binaries.pe_rules import Fields
    from cuwheel.device_code.pe import Pe, Row

_SMALLEST_HOLE = 1 << 14  # worth a section of its own behind it
_PADDING = 64  # zeros between two pieces of code that go: nothing is lost with them


class Part(NamedTuple):
    """A section of the new file: what is left of the old one `number`, from and to in the old file."""

    number: int
    start: int
    end: int
    address: int
    memory: int


class Layout(NamedTuple):
    """`annexed`: from where on an offset is one of device code that has grown, and where that goes in the new file.

    `zeros`: bytes that stay for want of room in the table of sections.
    """

    packed: Mapping[int, Packed]
    parts: tuple[Part, ...]
    shift: Shift
    cuts: tuple[Cut, ...]
    old_headers_size: int
    headers_size: int
    annexed: tuple[int, int]
    zeros: int

    def placed(self, offset: int) -> int:
        """In the new file."""
        if offset >= self.annexed[0]:
            return offset - self.annexed[0] + self.annexed[1]
        return self.shift.placed(offset)

    def address(self, number: int, offset: int) -> int:
        """Where a part of the old section `number` is loaded that stands at `offset`."""
        mine = (each for each in self.parts if each.number == number)
        home = next(each for each in mine if each.start <= offset < max(each.end, each.start + 1))
        return home.address + offset - home.start


def content_end(file: Pe) -> int:
    """Of the file without its signature. Raises MalformedError where something stands behind that."""
    place, size = file.directory(CERTIFICATES)
    if not size:
        return file.buffer.size
    if up(place + size, 8) < file.buffer.size:
        raise MalformedError(file.buffer.name, "something follows its signature")
    return place


def annex_start(file: Pe, head: Fields) -> int:
    """Behind every offset of the old file, at a place that suits all alignments."""
    return up(file.buffer.size, max(head.section_alignment, head.file_alignment))


def plan(file: Pe, head: Fields, packed: Mapping[int, Packed], blank: Sequence[Emptied]) -> Layout:
    annexes = tuple(_annexes(file, head, packed))
    room = _room(file, head) - len(annexes)
    if room < 0:
        raise MalformedError(file.buffer.name, "there is no room for another section header")
    used = {number: _used(file, row, packed.get(number), blank) for number, row in enumerate(file.rows)}
    ends = [cut for number, row in enumerate(file.rows) for cut in _behind(row, head, used[number])]
    middle = [cut for number, row in enumerate(file.rows) for cut in _between(row, head, used[number])]
    middle.sort(key=lambda cut: -cut.size)
    chosen = middle[:room]
    parts = tuple(_parts(file, [*ends, *chosen])) + annexes
    headers = max(head.headers_size, up(head.table_at + len(parts) * SECTION.size, head.file_alignment))
    end = content_end(file)
    cuts = tuple(sorted([*ends, *chosen, Cut(end, file.buffer.size)] if end < file.buffer.size else [*ends, *chosen]))
    shift = Shift(cuts, inserted=(headers - head.headers_size, head.headers_size))
    return Layout(
        packed=packed,
        parts=parts,
        shift=shift,
        cuts=cuts,
        old_headers_size=head.headers_size,
        headers_size=headers,
        annexed=(annex_start(file, head), up(shift.placed(end), head.file_alignment)),
        zeros=sum(cut.size for cut in middle[room:]),
    )


def _annexes(file: Pe, head: Fields, packed: Mapping[int, Packed]) -> Iterator[Part]:
    address, start = head.image_size, annex_start(file, head)
    for number, each in sorted(packed.items()):
        if each.annexed:
            if _has_overlay(file):
                raise MalformedError(file.buffer.name, "something follows its sections, which would have to stay last")
            end = each.annexed[1]
            yield Part(number, start, up(end, head.file_alignment), address, end - start)
            address, start = address + up(end - start, head.section_alignment), up(end, head.section_alignment)


def _has_overlay(file: Pe) -> bool:
    """Whether others put something behind the sections: installers do, and look for it at the file's end."""
    end = max(row.offset + row.stored for row in file.rows)
    return content_end(file) > end and not file.symbols_at


def _room(file: Pe, head: Fields) -> int:
    """How many rows more the table of sections can have."""
    end = head.table_at + len(file.rows) * SECTION.size
    if not loader.is_blank(file.buffer, end, head.headers_size):  # such as bound imports
        return 0
    return min((file.rows[0].address - end) // SECTION.size, MOST_SECTIONS - len(file.rows))


def _used(file: Pe, row: Row, packed: Packed | None, blank: Sequence[Emptied]) -> list[tuple[int, int]]:
    """The parts of a section's bytes that are needed."""
    whole = packed.islands if packed else ((row.offset, row.offset + row.stored),) if row.stored else ()
    gone = [Cut(each.start, each.end) for each in blank] if not row.traits & EXECUTABLE else []
    found = [part for start, end in whole for part in without(start, end, gone)]
    return [
        (start, end)
        for start, end in found
        if end - start >= _PADDING or (start, end) in whole or not loader.is_blank(file.buffer, start, end)
    ]


def _behind(row: Row, head: Fields, used: Sequence[tuple[int, int]]) -> Iterator[Cut]:
    """What follows the last byte needed."""
    end = used[-1][1] if used else row.offset
    cut = Cut(row.offset + up(end - row.offset, head.file_alignment), row.offset + row.stored)
    if cut.size > 0:
        yield cut


def _between(row: Row, head: Fields, used: Sequence[tuple[int, int]]) -> Iterator[Cut]:
    """What follows must begin where a section can."""
    end = row.offset
    for start, stop in used:
        low = row.offset + up(end - row.offset, head.file_alignment)
        high = row.offset + down(start - row.offset, head.section_alignment)
        if high - low >= _SMALLEST_HOLE:
            yield Cut(low, high)
        end = stop


def _parts(file: Pe, cuts: Sequence[Cut]) -> Iterator[Part]:
    for number, row in enumerate(file.rows):
        end = row.offset + row.stored
        inside = sorted(cut for cut in cuts if row.offset <= cut.start and cut.end <= end and row.stored)
        start, memory_end = row.offset, row.end
        for cut in inside:
            if cut.end < end:
                yield Part(number, start, cut.start, row.address + start - row.offset, cut.end - start)
                start = cut.end
            else:
                end = cut.start
        address = row.address + start - row.offset
        yield Part(number, start, end, address, memory_end - address)
