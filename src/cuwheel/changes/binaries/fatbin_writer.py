"""Containers with fewer or more entries: what each becomes, and where it goes. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.geometry import down, up
from cuwheel.device_code.fatbin import CONTAINER, RawEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.fatbin import RawContainer

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


def rebuilt(
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
    content = sum(_size(entry, replaced) for entry in keep)
    magic, version, size, _ = CONTAINER.unpack_from(head)
    header = CONTAINER.pack(magic, version, size, content) + head[CONTAINER.size :]
    room = old.size if pinned else len(header) + content
    return NewContainer(old, header, tuple(keep), replaced, room, pinned=pinned)


def _size(entry: RawEntry | Addition, replaced: dict[int, Replacement]) -> int:
    new = None if isinstance(entry, Addition) else replaced.get(entry.offset)
    return len(new.header) + new.size if new else entry.header_size + entry.payload


def pack(containers: Sequence[NewContainer], start: int, end: int, alignment: int) -> Packed | None:
    """Together as closely as those allow that stay where they are.

    None where they do not fit: only an absurd alignment does that.
    """
    fixed = [each for each in containers if each.pinned]
    ways = [_in_order(containers, start, end, alignment)]
    if fixed:
        ways.append(_in_order(containers, down(fixed[0].old.offset, alignment), end, alignment))
    possible = [each for each in ways if each]
    return min(possible, key=lambda each: (each.used, len(each.islands)), default=None)


def behind(containers: Sequence[NewContainer], start: int, alignment: int) -> Packed:
    """One behind the other from `start` on, which is behind the file's end; those that must stay do."""
    places, taken, cursor = {}, [], start
    for each in containers:
        if each.pinned:
            places[each.old.offset] = each.old.offset
            taken.append((each.old.offset, each.old.offset + each.size))
            continue
        cursor = up(cursor, alignment)
        places[each.old.offset] = cursor
        cursor += each.size
    return Packed(_islands(sorted(taken)) if taken else (), places, (up(start, alignment), cursor))


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
        at = up(cursor, alignment)
        for pin in stay:
            if at + each.size > pin.old.offset and at < pin.old.offset + pin.size:
                at = up(pin.old.offset + pin.size, alignment)
        if at + each.size > end:
            return None
        places[each.old.offset] = at
        cursor = at + each.size
    taken = sorted((places[each.old.offset], places[each.old.offset] + each.size) for each in containers)
    return Packed(_islands([(max(start, down(taken[0][0], alignment)), taken[0][1]), *taken[1:]]), places)


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


def pieces(container: NewContainer, place: int) -> Iterator[Piece]:
    """What a container at `place` is made of, neighbours in the source as one piece."""
    if container.pinned and len(container.entries) == len(container.old.entries):
        yield Piece(place, container.size, container.old.offset, device=True)
        return
    yield Piece(place, len(container.header), data=container.header)
    place += len(container.header)
    run_start = run_size = 0
    for entry in container.entries:
        size = _size(entry, container.replaced)
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
