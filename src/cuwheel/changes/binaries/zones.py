"""Parts of an ELF file that were emptied in place: which whole pages of them need not be in the file. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import loader
from cuwheel.changes.binaries.geometry import BLOCK_ALIGNMENT, PAGES, Cut, down, up
from cuwheel.device_code.elf import PF_X, PT_LOAD, SHT_NOBITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.binaries.emptied import Emptied
    from cuwheel.device_code.elf import Elf, Header, Segment

# Where code that is emptied in place lies close together, what is between is not worth a program header.
SMALLEST_ZEROS = 1 << 14


class Zone(NamedTuple):
    """A part of the file that was emptied in place: where its first cut may begin at the earliest."""

    start: int
    end: int
    page: int
    first: int


def cuts(zones: Sequence[Zone], block: tuple[int, int] | None) -> Iterator[Cut]:
    """The whole pages of what was emptied in place."""
    for start, end, page, first in zones:
        free = block[1] if block and start <= block[0] < end else start
        cut = Cut(max(up(free, page), first), down(end, page), zeros=True)
        if cut.size >= SMALLEST_ZEROS:
            yield cut


def found(elf: Elf, emptied: Sequence[Emptied]) -> tuple[tuple[Zone, ...], tuple[Cut, ...]]:
    """Memory that may be run is not made of zeros (systems forbid it): there a section is parted from what is before.

    A page of the section stays before its first cut: it is what the zeros behind it are loaded with.
    """
    zones: list[Zone] = []
    parting: dict[int, Cut] = {}
    for start, end in _together(elf, emptied):
        header = section_of(elf, start)
        segment = segment_of(elf, header) if header else None
        page = page_of(elf, segment) if segment else None
        if header and segment and page:
            begin = up(header.offset, page)
            zones.append(Zone(start, end, page, begin + page))
            if segment.flags & PF_X:
                parting[header.number] = Cut(begin, begin, zeros=True)
    return tuple(zones), tuple(parting.values())


def _together(elf: Elf, emptied: Sequence[Emptied]) -> Iterator[tuple[int, int]]:
    """What was emptied, neighbours as one where only zeros are between them."""
    start = end = 0
    for each in emptied:
        if (
            end
            and not each.header
            and each.start - end < BLOCK_ALIGNMENT
            and loader.is_blank(elf.buffer, end, each.start)
        ):
            end = each.end
            continue
        if end:
            yield start, end
        start, end = each.start, each.end
    if end:
        yield start, end


def section_of(elf: Elf, offset: int) -> Header | None:
    inside = (
        each for each in elf.headers if each.type != SHT_NOBITS and each.offset <= offset < each.offset + each.size
    )
    return next(inside, None)


def page_of(elf: Elf, segment: Segment) -> int | None:
    """What must divide a cut; None where the segment's offset and address do not allow one."""
    page = PAGES[elf.machine_name]
    if segment.alignment and segment.alignment < page:
        page = segment.alignment  # linked for kernels with small pages only
    if page < min(PAGES.values()) or (segment.offset - segment.address) % page:
        return None
    return page


def segment_of(elf: Elf, header: Header) -> Segment | None:
    """The one segment that loads a section."""
    found = [
        each
        for each in elf.segments
        if each.type == PT_LOAD and each.offset < header.offset + header.size and header.offset < end_of(each)
    ]
    if len(found) != 1 or header.offset < found[0].offset or header.offset + header.size > end_of(found[0]):
        return None
    return found[0]


def end_of(segment: Segment) -> int:
    return segment.offset + segment.file_size
