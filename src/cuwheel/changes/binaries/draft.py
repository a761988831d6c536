"""A library's new bytes, whatever its format: what each container becomes, where it goes, and what is written where.

Pages are cut out of a file whole. Addresses never change: only offsets do. Everything is counted in offsets of the
original file; `Shift` turns them into offsets of the new one.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cuwheel.support.finding import finding
from cuwheel_core.device_code import elf, fatbin, limits, pe
from cuwheel_core.device_code.dynamic import ElfPointers
from cuwheel_core.device_code.fatbin import CONTAINER, MAGIC, ZSTD_MAGIC, RawContainer, RawEntry
from cuwheel_core.device_code.pe import Pe
from cuwheel_core.device_code.registration import read_registration
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, WRAPPER_SECTIONS, disjoint
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.wording import size

if TYPE_CHECKING:
    from cuwheel.changes.binaries.plan import EntryDecision, LibraryPlan
    from cuwheel_core.device_code.elf import Elf
    from cuwheel_core.device_code.libraries import Registration
    from cuwheel_core.support.buffer import Buffer
    from cuwheel_core.support.finding import Finding

BLOCK_ALIGNMENT = 64  # of what moves among device code


class Cut(NamedTuple):
    """Whole pages that are left out. `zeros`: whoever reads them finds zeros; else nothing is loaded there."""

    start: int
    end: int
    zeros: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start


class Block(NamedTuple):
    """Bytes that move elsewhere, addresses and all, to make room for program headers."""

    start: int
    end: int
    to: int
    address_delta: int

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end


class Shift:
    """From an offset in the original file to the one in the new file.

    `inserted`: how many bytes more there are, before what stood at which offset.
    """

    def __init__(self, cuts: Sequence[Cut], block: Block | None = None, inserted: tuple[int, int] = (0, 0)) -> None:
        self._more, self._from = inserted
        self._ends = [cut.end for cut in sorted(cuts)]
        self._gone = [0, *itertools.accumulate(cut.size for cut in sorted(cuts))]
        self._block = block

    def __call__(self, offset: int) -> int:
        """Where a byte goes that is kept where it was, or in the block that moves."""
        if self._block and self._block.holds(offset):
            offset += self._block.to - self._block.start
        return self.placed(offset)

    def placed(self, offset: int) -> int:
        """Where a place goes, whatever stood there before."""
        more = self._more if offset >= self._from else 0
        return offset - self._gone[bisect.bisect_right(self._ends, offset)] + more


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def round_down(value: int, step: int) -> int:
    return value // step * step


def uncut_parts(start: int, end: int, cuts: Sequence[Cut]) -> Iterator[tuple[int, int]]:
    """What is left of [start, end), in order."""
    for cut in sorted(cuts):
        if cut.end <= start or cut.start >= end:
            continue
        if cut.start > start:
            yield start, cut.start
        start = cut.end
    if start < end:
        yield start, end


# Containers with fewer or more entries: what each becomes, and where it goes. Pure.

_SMALLEST_HOLE = 1 << 16
_MOST_HOLES = 64


class Replacement(NamedTuple):
    """An entry's new header, and its new payload in the spool, padding included."""

    header: bytes
    spool: int
    size: int


class Addition(NamedTuple):
    """An entry of another file, whole in the spool: its header, then its payload."""

    spool: int
    header_size: int
    payload: int


class NewContainer(NamedTuple):
    """`header`: the bytes before the first entry, with the new size. `pinned`: nobody may move it.

    One that stays and is emptied keeps its place whole: whoever finds it there must not find another in it.
    """

    old: RawContainer
    header: bytes
    entries: tuple[RawEntry | Addition, ...]
    replaced: dict[int, Replacement]  # by the offset of the entry
    size: int
    pinned: bool


class Packed(NamedTuple):
    """The parts of a section that are still used, in order, and where each container begins, by where it began.

    There is one part unless containers that must stay lie far from the others. `annexed`: what no longer fits the
    section and goes behind the end of the file, from and to; no island is left where all of it does.
    """

    islands: tuple[tuple[int, int], ...]
    places: dict[int, int]
    annexed: tuple[int, int] | None = None

    @property
    def used(self) -> int:
        return sum(end - start for start, end in self.islands)


class Piece(NamedTuple):
    """Bytes of the new file: from `offset` in the source, or in the spool, or given. `device`: entries."""

    place: int
    size: int
    offset: int = 0
    data: bytes = b""
    spool: bool = False
    device: bool = False


def rebuild_container(
    old: RawContainer,
    head: bytes,
    keep: Sequence[RawEntry | Addition],
    replaced: dict[int, Replacement],
    *,
    pinned: bool,
) -> NewContainer:
    """`head`: the container's header as it stands in the file."""
    if pinned and len(keep) == len(old.entries):
        return NewContainer(old, head, old.entries, {}, old.size, pinned=True)
    content = sum(_entry_size(entry, replaced) for entry in keep)
    magic, version, size, _ = CONTAINER.unpack_from(head)
    header = CONTAINER.pack(magic, version, size, content) + head[CONTAINER.size :]
    room = old.size if pinned else len(header) + content
    return NewContainer(old, header, tuple(keep), replaced, room, pinned=pinned)


def _entry_size(entry: RawEntry | Addition, replaced: dict[int, Replacement]) -> int:
    new = None if isinstance(entry, Addition) else replaced.get(entry.offset)
    return len(new.header) + new.size if new else entry.header_size + entry.payload


def pack_containers(containers: Sequence[NewContainer], start: int, end: int, alignment: int) -> Packed | None:
    """Together as closely as those allow that stay where they are.

    None where they do not fit: only an absurd alignment does that.
    """
    fixed = [each for each in containers if each.pinned]
    ways = [_in_order(containers, start, end, alignment)]
    if fixed:
        ways.append(_in_order(containers, round_down(fixed[0].old.offset, alignment), end, alignment))
    possible = [each for each in ways if each]
    return min(possible, key=lambda each: (each.used, len(each.islands)), default=None)


def pack_behind(containers: Sequence[NewContainer], start: int, alignment: int) -> Packed:
    """One behind the other from `start` on, which is behind the file's end; those that must stay do."""
    places, taken, cursor = {}, [], start
    for each in containers:
        if each.pinned:
            places[each.old.offset] = each.old.offset
            taken.append((each.old.offset, each.old.offset + each.size))
            continue
        cursor = round_up(cursor, alignment)
        places[each.old.offset] = cursor
        cursor += each.size
    return Packed(_islands(sorted(taken)) if taken else (), places, (round_up(start, alignment), cursor))


def _in_order(containers: Sequence[NewContainer], start: int, end: int, alignment: int) -> Packed | None:
    """Each at the first place behind the last; None where that does not fit.

    From the section's start it always fits: nothing grows, so nothing stands behind its old place.
    """
    stay = [each for each in containers if each.pinned]
    places = {each.old.offset: each.old.offset for each in stay}
    cursor = start
    for each in containers:
        if each.pinned:
            continue
        at = round_up(cursor, alignment)
        for pin in stay:
            if at + each.size > pin.old.offset and at < pin.old.offset + pin.size:
                at = round_up(pin.old.offset + pin.size, alignment)
        if at + each.size > end:
            return None
        places[each.old.offset] = at
        cursor = at + each.size
    taken = sorted((places[each.old.offset], places[each.old.offset] + each.size) for each in containers)
    return Packed(_islands([(max(start, round_down(taken[0][0], alignment)), taken[0][1]), *taken[1:]]), places)


def _islands(taken: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """What lies close together as one; holes too small, or too many, to be worth a program header stay."""
    gaps = sorted((after[0] - before[1] for before, after in itertools.pairwise(taken)), reverse=True)
    smallest = max([_SMALLEST_HOLE, *gaps[_MOST_HOLES : _MOST_HOLES + 1]])
    islands = [taken[0]]
    for start, end in taken[1:]:
        if start - islands[-1][1] > smallest:
            islands.append((start, end))
        else:
            islands[-1] = (islands[-1][0], max(end, islands[-1][1]))
    return tuple(islands)


def container_pieces(container: NewContainer, place: int) -> Iterator[Piece]:
    """What a container at `place` is made of, neighbours in the source as one piece."""
    if container.pinned and len(container.entries) == len(container.old.entries):
        yield Piece(place, container.size, container.old.offset, device=True)
        return
    yield Piece(place, len(container.header), data=container.header)
    place += len(container.header)
    run_start = run_size = 0
    for entry in container.entries:
        size = _entry_size(entry, container.replaced)
        if isinstance(entry, Addition):
            new: Addition | Replacement | None = entry
        else:
            new = container.replaced.get(entry.offset)
            if new is None and run_size and run_start + run_size == entry.offset:
                run_size += size
                continue
        if run_size:
            yield Piece(place, run_size, run_start, device=True)
            place += run_size
            run_size = 0
        if isinstance(entry, RawEntry) and new is None:
            run_start, run_size = entry.offset, size
            continue
        if isinstance(new, Replacement):
            yield Piece(place, len(new.header), data=new.header)
            yield Piece(place + len(new.header), new.size, new.spool, spool=True, device=True)
        elif new:
            yield Piece(place, size, new.spool, spool=True, device=True)
        place += size
    if run_size:
        yield Piece(place, run_size, run_start, device=True)


# Device code that the library finds by itself, outside the sections made for it: it goes where it stands. Whatever
# finds it (an address in the library's data, a place computed by its code) still finds the same address. A container
# keeps its header and says that it holds nothing; the rest becomes zeros.

_SMALL_CONTAINER = 1 << 16


class Emptied(NamedTuple):
    """Of the file, [start, end) becomes zeros. `header`: what is then before it, of a container."""

    start: int
    end: int
    header: bytes = b""


def find_emptied(buffer: Buffer, plan: LibraryPlan, stay: Sequence[NewContainer] = ()) -> tuple[Emptied, ...]:
    """`stay`: containers that nothing names, in the sections made for them, of which nothing is kept.

    Raises MalformedError where the file is not the one that was planned for.
    """
    containers: dict[int, list[EntryDecision]] = {}
    found = []
    for each in plan.entries:
        if each.entry.container is None:
            found += [] if each.keep else [_emptied_cubin(buffer, each)]
        elif each.entry.section not in FATBIN_SECTIONS:
            containers.setdefault(each.entry.container, []).append(each)
    found += [_emptied_container(buffer, each) for each in containers.values() if not all(one.keep for one in each)]
    if plan.by_use:
        found = [_without_header(each) for each in found]
    found += [
        Emptied(each.old.offset + len(each.header), each.old.offset + each.old.size, each.header) for each in stay
    ]
    return tuple(sorted(found))


def _emptied_cubin(buffer: Buffer, each: EntryDecision) -> Emptied:
    start = each.entry.offset
    if buffer.read(start, 4) not in (elf.MAGIC, ZSTD_MAGIC):
        raise _not_planned_for(buffer)
    return Emptied(start, start + each.bytes)


def _emptied_container(buffer: Buffer, entries: Sequence[EntryDecision]) -> Emptied:
    start = entries[0].entry.offset
    head = buffer.read(start - CONTAINER.size, CONTAINER.size) if start >= CONTAINER.size else bytes(CONTAINER.size)
    magic, version, header, size = CONTAINER.unpack(head)
    if any(each.keep for each in entries):
        raise MalformedError(buffer.name, f"a part of the container at {start:#x} was to go, which only whole ones can")
    if head[:4] != MAGIC or header != CONTAINER.size or size != sum(each.bytes for each in entries):
        raise _not_planned_for(buffer)
    return Emptied(start, start + size, CONTAINER.pack(magic, version, header, 0))


def _without_header(container: Emptied) -> Emptied:
    """Without its header. Thousands of small containers, which only their neighbours make worth a page, go so."""
    small = container.end - container.start < _SMALL_CONTAINER
    return Emptied(container.start - len(container.header), container.end) if small else container


def _not_planned_for(buffer: Buffer) -> MalformedError:
    return MalformedError(buffer.name, "it is not the file that was planned for")


Patch: TypeAlias = tuple[int, bytes]  # a place in the new file, and what stands there


class NewFile(NamedTuple):
    """As much of a `Draft` as it takes to write one."""

    size: int
    pieces: tuple[Piece, ...]
    patches: tuple[Patch, ...] = ()
    checksum_at: int | None = None


class Draft(NamedTuple):
    """`placed`: from the old offset of a container to the new. `patches` go over the pieces.

    `checksum_at`: where the sum over the finished file goes, in a format that has one.
    """

    old_size: int
    containers: tuple[NewContainer, ...]
    registration: Registration
    emptied: tuple[Emptied, ...]
    replacements: Mapping[int, Replacement]
    placed: Mapping[int, int]
    pieces: tuple[Piece, ...]
    patches: tuple[Patch, ...]
    shift: Shift
    size: int
    findings: tuple[Finding, ...]
    checksum_at: int | None = None


def open_library(buffer: Buffer) -> Elf | Pe:
    """Raises MalformedError where it is neither."""
    return pe.read_pe(buffer) if pe.is_pe(buffer) else elf.read_elf(buffer)


def walk_containers(file: Elf | Pe) -> tuple[fatbin.Walk, Registration]:
    """The containers in the sections made for them, and what names them. Raises MalformedError on any damage."""
    walk = fatbin.Walk(file.buffer)
    sections, _ = disjoint(file.sections if isinstance(file, Pe) else file.sections())
    with limits.collected() as met:
        for each in sections:
            if each.name in FATBIN_SECTIONS:
                walk.section(each.name, each.offset, each.offset + each.size, linked=FATBIN_SECTIONS[each.name])
        pointers = file if isinstance(file, Pe) else ElfPointers(file, tuple(WRAPPER_SECTIONS))
        found, problems = read_registration(file.buffer, sections, walk.containers, pointers)
    if problem := next(iter((*walk.findings, *problems, *met)), None):
        raise MalformedError(file.buffer.name, problem.message)
    return walk, found


def must_lead_to_containers(
    name: str,
    pointers: Sequence[int],
    offset_of: Callable[[int], int | None],
    containers: Sequence[NewContainer],
    moved: Mapping[int, int],
) -> None:
    """Raises MalformedError where a pointer leads elsewhere, or a container moves that no pointer leads to.

    `pointers`: the addresses in device code that something points at. `moved`: from old addresses to new ones.
    """
    still = [(each.old.offset, each.old.offset + each.old.size) for each in containers if each.pinned]
    for each in pointers:
        at = offset_of(each)
        if each not in moved and not any(at is not None and start <= at < end for start, end in still):
            raise MalformedError(name, f"something points into its device code at {each:#x}, not at a container")
    named = frozenset(pointers)
    if unknown := [old for old, new in moved.items() if old != new and old not in named]:
        raise MalformedError(name, f"the reference to the container at {unknown[0]:#x} is of an unknown kind")


class Section(NamedTuple):
    """A section whose containers are written anew: where it stands in the old file."""

    start: int
    end: int
    packed: Packed


class Kept(NamedTuple):
    """What stays of the old file: all but `gone`, moved by `shift`. `placed`: where a new place ends up."""

    size: int
    gone: Sequence[Cut]
    shift: Shift
    placed: Callable[[int], int]

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        for low, high in uncut_parts(start, end, self.gone):
            yield Piece(self.shift.placed(low), high - low, low)


def rewritten_pieces(
    kept: Kept, sections: Sequence[Section], containers: Sequence[NewContainer], blank: Sequence[Emptied]
) -> Iterator[Piece]:
    """The file from its start to its end, with the containers where they are now."""
    position = 0
    for section in sorted(sections, key=lambda each: each.start):
        yield from kept.pieces(position, section.start)
        for each in containers:
            if each.old.offset in section.packed.places:
                yield from container_pieces(each, kept.placed(section.packed.places[each.old.offset]))
        position = section.end
    yield from kept.pieces(position, kept.size)
    for empty in blank:  # the headers stay
        if empty.header:
            yield Piece(kept.placed(empty.start - len(empty.header)), len(empty.header), data=empty.header)


def no_room(zeros: int, headers: str) -> Finding:
    return finding(
        "file-keeps-its-size",
        f"{size(zeros)} of the removed device code stay in the file as zeros: there is no room for the "
        f"{headers} needed to drop them",
    )
