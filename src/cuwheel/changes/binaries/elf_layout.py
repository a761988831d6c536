"""Which pages of an ELF file can be cut out once its device code is packed or emptied, and how the loader is told.

Pure: nothing is written here.
A cut in the middle of a segment makes two of it, so the table of program headers grows. It stays where it is, right
behind the file's header, where every tool looks for it: the small sections behind it (build id, hash table) move into
room that the device code no longer needs; where hundreds of cuts want it, the dynamic relocations too. Device code that
has grown goes into an annex: a segment more, behind the file's end and above everything that is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import elf_references
from cuwheel.changes.binaries.draft import BLOCK_ALIGNMENT, Block, Cut, round_down, round_up, uncut_parts
from cuwheel.changes.binaries.elf_references import SHT_GNU_HASH, SHT_VERDEF, SHT_VERNEED, SHT_VERSYM
from cuwheel.changes.binaries.plan import PAGES
from cuwheel_core.device_code.elf import PF_X, PT_LOAD, SHT_DYNSYM, SHT_HASH, SHT_NOBITS, SHT_NOTE, SHT_RELA, SHT_STRTAB
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel.changes.binaries.draft import Emptied, Packed
    from cuwheel_core.device_code.elf import Elf, Header, Segment


# Where code that is emptied in place lies close together, what is between is not worth a program header.
SMALLEST_ZEROS = 1 << 14


class Zone(NamedTuple):
    """A part of the file that was emptied in place: where its first cut may begin at the earliest."""

    start: int
    end: int
    page: int
    first: int


def zone_cuts(zones: Sequence[Zone], block: tuple[int, int] | None) -> Iterator[Cut]:
    """The whole pages of what was emptied in place."""
    for start, end, page, first in zones:
        free = block[1] if block and start <= block[0] < end else start
        cut = Cut(max(round_up(free, page), first), round_down(end, page), zeros=True)
        if cut.size >= SMALLEST_ZEROS:
            yield cut


def find_zones(elf: Elf, emptied: Sequence[Emptied]) -> tuple[tuple[Zone, ...], tuple[Cut, ...]]:
    """Memory that may be run is not made of zeros (systems forbid it): there a section is parted from what is before.

    A page of the section stays before its first cut: it is what the zeros behind it are loaded with.
    """
    zones: list[Zone] = []
    parting: dict[int, Cut] = {}
    for start, end in _joined_neighbours(elf, emptied):
        header = section_of(elf, start)
        segment = segment_of(elf, header) if header else None
        page = page_of(elf, segment) if segment else None
        if header and segment and page:
            begin = round_up(header.offset, page)
            zones.append(Zone(start, end, page, begin + page))
            if segment.flags & PF_X:
                parting[header.number] = Cut(begin, begin, zeros=True)
    return tuple(zones), tuple(parting.values())


def _joined_neighbours(elf: Elf, emptied: Sequence[Emptied]) -> Iterator[tuple[int, int]]:
    """What was emptied, neighbours as one where only zeros are between them."""
    start = end = 0
    for each in emptied:
        if (
            end
            and not each.header
            and each.start - end < BLOCK_ALIGNMENT
            and elf_references.is_blank(elf.buffer, end, each.start)
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


# The layout: cuts, what moves out of the way of the table of program headers, and the annex.

PROGRAM_HEADER = 56
# How to make room, the best way first: rows to spare, and what may move. patchelf adds rows of its own, and looks for
# room only where section headers are in order. Where the dynamic symbols have moved, strip puts their section elsewhere
# in its table without telling the symbols: harmless, but better avoided.
_SMALL = frozenset({SHT_NOTE, SHT_HASH, SHT_GNU_HASH})
_MOVABLE = _SMALL | {SHT_DYNSYM, SHT_STRTAB, SHT_VERSYM}
_ALL = _MOVABLE | {SHT_VERDEF, SHT_VERNEED, SHT_RELA}
_WAYS = ((4, _SMALL), (3, _SMALL), (2, _SMALL), (4, _MOVABLE), (1, _SMALL), (0, _SMALL), (0, _MOVABLE), (4, _ALL))
_INTERPRETER = ".interp"


class Annex(NamedTuple):
    """The segment more, from and to in the file as if nothing were cut out of it, and where it is loaded."""

    start: int
    end: int
    address: int
    page: int


class Layout(NamedTuple):
    """`packed`: by the number of the section. `zeros`: bytes not cut out for want of room for program headers.

    `emptied`: numbers of the sections that code was emptied in, in place.
    """

    packed: Mapping[int, Packed]
    cuts: tuple[Cut, ...]
    block: Block | None
    zeros: int = 0
    emptied: tuple[int, ...] = ()
    annex: Annex | None = None

    def parts(self, number: int) -> Iterator[tuple[int, int]]:
        """What is left of a section, from and to: a cut in the middle of it makes two."""
        packed = self.packed[number]
        if islands := packed.islands:
            for start, end in uncut_parts(islands[0][0], islands[-1][1], self.cuts):
                if inside := [high for low, high in islands if low < end and start < high]:
                    yield start, min(end, max(inside))
        if packed.annexed:
            yield packed.annexed

    def address(self, header: Header, offset: int) -> int:
        """Where a part of the section `header` is loaded that stands at `offset`."""
        if self.annex and offset >= self.annex.start:
            return self.annex.address + offset - self.annex.start
        return header.address + offset - header.offset


class Free(NamedTuple):
    """What the file no longer needs: behind packed containers, and in place. `parting`: cuts that take nothing."""

    packed: Mapping[int, Packed]
    zones: tuple[Zone, ...]
    parting: tuple[Cut, ...]
    annex: Annex | None = None


class Table(NamedTuple):
    """The program headers: where, and how many."""

    offset: int
    rows: int

    @property
    def end(self) -> int:
        return self.offset + self.rows * PROGRAM_HEADER


def plan_layout(
    elf: Elf,
    table: Table,
    tables: Sequence[tuple[int, int]],
    packed: Mapping[int, Packed],
    emptied: Sequence[Emptied] = (),
    annex: Annex | None = None,
) -> Layout:
    """`tables`: where the tables of section and program headers are, from and to."""
    free = Free(packed, *find_zones(elf, emptied), annex)
    used = sorted(_used(elf, tables))
    every = _cuts(elf, free, used)
    made = _attempt(elf, table, free, used, len(every))
    zeros = 0
    low, high = 0, len(every)
    while made is None or (low and low + 1 < high):  # where not all fit the table, as many of the largest as do
        count = (low + high) // 2
        if count == 0:
            made = _attempt(elf, table, free, used, 0) if annex else Layout(free.packed, (), None)
            if made is None:
                raise MalformedError(elf.buffer.name, "there is no room for another program header")
        elif found := _attempt(elf, table, free, used, count):
            made, low = found, count
        else:
            high = count
        zeros = sum(cut.size for cut in every) - sum(cut.size for cut in _largest(every, low))
    inside = (section_of(elf, cut.start) for cut in made.cuts if cut.zeros and cut.size)
    numbers = tuple(sorted({each.number for each in inside if each} - set(packed)))
    return made._replace(zeros=zeros, emptied=numbers)


def annex_start(elf: Elf) -> Annex:
    """An empty one: behind everything in the file, above everything in memory."""
    page = PAGES[elf.machine_name]
    top = max(each.address + each.memory_size for each in elf.segments if each.type == PT_LOAD)
    start = round_up(elf.buffer.size, page)
    return Annex(start, start, round_up(top, page), page)


def _attempt(elf: Elf, table: Table, free: Free, used: Sequence[tuple[int, int]], count: int) -> Layout | None:
    """A layout with the largest `count` cuts, or none."""
    cuts = _largest(_cuts(elf, free, used), count)
    first = min((start for start, _ in used if start >= table.end), default=elf.buffer.size)
    wanted_end = table.end + (_splits(elf, cuts) + bool(free.annex)) * PROGRAM_HEADER
    if wanted_end <= first and elf_references.is_free(elf, table.end, wanted_end):
        return Layout(free.packed, cuts, None, annex=free.annex)
    ways = (_with_room(elf, table, free, used, count, way) for way in _WAYS)
    return next((made for made in ways if made), None)


def _largest(cuts: Sequence[Cut], count: int) -> tuple[Cut, ...]:
    """Those of no size only part what may be run from what may not: they cost a row and are always wanted."""
    parting = [cut for cut in cuts if not cut.size]
    largest = sorted((cut for cut in cuts if cut.size), key=lambda cut: -cut.size)
    return tuple(sorted([*parting, *largest[:count]]))


def _with_room(
    elf: Elf,
    table: Table,
    free: Free,
    used: Sequence[tuple[int, int]],
    count: int,
    way: tuple[int, frozenset[int]],
) -> Layout | None:
    """Move what stands behind the table to behind device code, which makes a cut the smaller, or into the annex."""
    cuts = _largest(_cuts(elf, free, used), count)
    spare, movable = way
    rows = _splits(elf, cuts) + bool(free.annex) + spare
    found = _block(elf, table.end, table.end + rows * PROGRAM_HEADER, used, movable)
    if found is None:
        return None
    start, end = found
    leftovers = _left_behind(elf, table.end + (rows + 1) * PROGRAM_HEADER, end)
    if free.annex:
        to = round_up(free.annex.end - start, BLOCK_ALIGNMENT) + start
        distance = free.annex.address + to - free.annex.start - _address(elf, start)
        annex = free.annex._replace(end=to + end - start)
        return Layout(free.packed, tuple(sorted([*leftovers, *cuts])), Block(start, end, to, distance), annex=annex)
    hole = max(_holes(elf, free), key=lambda hole: hole[1] - hole[0], default=(0, 0))
    to = round_up(hole[0] - start, BLOCK_ALIGNMENT) + start
    if to + end - start > hole[1]:
        return None
    remaining = _largest(_cuts(elf, free, used, (to, to + end - start)), count)
    if not remaining or _splits(elf, remaining) > _splits(elf, cuts):
        return None
    block = Block(start, end, to, _address(elf, to) - _address(elf, start))
    made = Layout(free.packed, tuple(sorted([*leftovers, *remaining])), block)
    parts = (part for number in free.packed for part in made.parts(number))
    # Between containers that no cut parts it would be read as one of them.
    return None if any(low < to + end - start and to < high for low, high in parts) else made


def _left_behind(elf: Elf, table_end: int, end: int) -> Iterator[Cut]:
    """The pages between the table and `end`, from where a large block has moved away."""
    home = next(
        (each for each in elf.segments if each.type == PT_LOAD and each.offset <= table_end < end_of(each)), None
    )
    page = page_of(elf, home) if home else None
    if home and page:
        cut = Cut(round_up(table_end, page), round_down(min(end, end_of(home)), page))
        if cut.size > SMALLEST_ZEROS:
            yield cut


def _holes(elf: Elf, free: Free) -> Iterator[tuple[int, int]]:
    """What is free behind each part of a section that is used; in place only where there is nothing else."""
    for number, each in free.packed.items():
        following = [start for start, _ in each.islands[1:]]
        for (_, end), until in zip(
            each.islands, [*following, elf.headers[number].offset + elf.headers[number].size], strict=True
        ):
            yield end, until
    if not free.packed:
        yield from ((each.start, each.end) for each in free.zones)


def _cuts(
    elf: Elf, free: Free, used: Sequence[tuple[int, int]], block: tuple[int, int] | None = None
) -> tuple[Cut, ...]:
    """The pages that nothing needs; `block`: what else goes among the device code."""
    cuts = [*free.parting, *zone_cuts(free.zones, block)]
    for number, each in free.packed.items():
        header = elf.headers[number]
        segment = segment_of(elf, header)
        page = page_of(elf, segment) if segment else None
        if segment is None or page is None:
            continue
        until = _free_behind(elf, header, segment, used)
        inside = [block] if block and header.offset <= block[0] < until else []
        taken = sorted([*each.islands, *inside, (until, until)])
        start = header.offset
        for low, high in taken:
            cut = Cut(round_up(start, page), round_down(low, page))
            if cut.size > 0 and cut.start >= segment.offset:
                cuts.append(cut)
            start = max(start, high)
    return tuple(sorted(cuts))


def _free_behind(elf: Elf, header: Header, segment: Segment, used: Sequence[tuple[int, int]]) -> int:
    """Up to where nothing but padding follows a section.

    What is loaded behind it stays: that no section tells of it does not mean that no code reads it. A segment that
    begins with device code is none of a linker's: what follows there is padding of an earlier change.
    """
    end = header.offset + header.size
    following = min((start for start, stop in used if stop > end and start >= end), default=elf.buffer.size)
    own = segment.offset == header.offset and following >= end_of(segment)
    if (end_of(segment) > end and not own) or segment.memory_size > segment.file_size:
        return end
    if any(start < end < stop for start, stop in used if start != header.offset):
        return end
    return following if elf_references.is_blank(elf.buffer, end, following) else end


def _used(elf: Elf, tables: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What the file's bytes are needed for, as far as its tables say. Segments count where they begin."""
    yield from tables
    for section in elf.headers:
        if section.type not in (0, SHT_NOBITS) and section.size:
            yield section.offset, section.offset + section.size
    for segment in elf.segments:
        if segment.file_size:
            if segment.type == PT_LOAD:
                yield segment.offset, segment.offset + 1
            else:
                yield segment.offset, end_of(segment)


def _splits(elf: Elf, cuts: Sequence[Cut]) -> int:
    """How many program headers more there will be."""
    return sum(
        1
        for cut in cuts
        for each in elf.segments
        if each.type == PT_LOAD and each.offset < cut.start and cut.end < end_of(each)
    )


def _block(
    elf: Elf, start: int, wanted: int, used: Sequence[tuple[int, int]], movable: frozenset[int]
) -> tuple[int, int] | None:
    """What stands between `start` and at least `wanted`, if all of it may move.

    Free to move is what the loader finds through the dynamic section or a program header alone.
    """
    sections = sorted((each for each in elf.headers if each.type not in (0, SHT_NOBITS)), key=lambda each: each.offset)
    end = start
    for section in sections:
        if section.offset < start or not section.size:
            continue
        # What a program header covers moves as one piece: several notes may have one.
        wanted = max(wanted, *(end_of(each) for each in elf.segments if _straddles(each, start, end)), 0)
        if section.offset >= wanted and section.offset >= end:
            break
        if section.type not in movable and section.name != _INTERPRETER:
            return None
        if not elf_references.loader_finds(elf, section):
            return None
        end = section.offset + section.size
    if end < wanted and any(offset < wanted for offset, stop in used if offset >= end and stop > end):
        return None
    if not elf_references.is_free(elf, end, wanted) or elf_references.is_pointed_into(elf, start, end):
        return None
    if end <= start or not all(_moves_with(each, start, end) for each in elf.segments if each.file_size):
        return None
    return start, end


def _straddles(segment: Segment, start: int, end: int) -> bool:
    return segment.type != PT_LOAD and start <= segment.offset < end < end_of(segment)


def _moves_with(segment: Segment, start: int, end: int) -> bool:
    """Whether a segment does not care that [start, end) moves: it has none of it, or is moved too, or loads it."""
    low, high = segment.offset, end_of(segment)
    if high <= start or low >= end:
        return True
    if segment.type == PT_LOAD:
        return low <= start and end <= high
    return start <= low and high <= end


def _address(elf: Elf, offset: int) -> int:
    """Where something that is loaded will be."""
    home = next(each for each in elf.segments if each.type == PT_LOAD and each.offset <= offset < end_of(each))
    return offset - home.offset + home.address
