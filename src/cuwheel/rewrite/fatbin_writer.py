"""Containers with some of their entries: what each becomes, and where in its section it goes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.inspection.fatbin import CONTAINER
from cuwheel.rewrite.geometry import up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.inspection.fatbin import RawContainer, RawEntry


class Replacement(NamedTuple):
    """An entry's new header, and its new payload in the spool, padding included."""

    header: bytes
    spool: int
    size: int


class NewContainer(NamedTuple):
    """`header`: the bytes before the first entry, with the new size. `pinned`: nobody may move or change it."""

    old: RawContainer
    header: bytes
    entries: tuple[RawEntry, ...]
    replaced: dict[int, Replacement]  # by the offset of the entry
    size: int
    pinned: bool


class Packed(NamedTuple):
    """The part of a section that is still used, and where each container begins, by where it began."""

    low: int
    high: int
    places: dict[int, int]


class Piece(NamedTuple):
    """Bytes of the new file: from `offset` in the source, or in the spool, or given. `device`: entries."""

    place: int
    size: int
    offset: int = 0
    data: bytes = b""
    spool: bool = False
    device: bool = False


def rebuilt(
    old: RawContainer, head: bytes, keep: Sequence[RawEntry], replaced: dict[int, Replacement], *, pinned: bool
) -> NewContainer:
    """`head`: the container's header as it stands in the file."""
    if pinned:
        return NewContainer(old, head, old.entries, {}, old.size, pinned=True)
    content = sum(_size(entry, replaced) for entry in keep)
    magic, version, size, _ = CONTAINER.unpack_from(head)
    header = CONTAINER.pack(magic, version, size, content) + head[CONTAINER.size :]
    return NewContainer(old, header, tuple(keep), replaced, len(header) + content, pinned=False)


def _size(entry: RawEntry, replaced: dict[int, Replacement]) -> int:
    new = replaced.get(entry.offset)
    return len(new.header) + new.size if new else entry.header_size + entry.payload


def pack(containers: Sequence[NewContainer], start: int, end: int, alignment: int) -> Packed | None:
    """Together as closely as those allow that stay where they are; the used part of a section has no hole.

    None where they do not fit: only an absurd alignment does that.
    """
    fixed = [each for each in containers if each.pinned]
    ways = [_in_order(containers, start, end, alignment)]
    if fixed:
        behind = _in_order(
            [each for each in containers if not each.pinned], fixed[0].old.offset, end, alignment, fixed=fixed
        )
        ways.append(behind)
    return min((each for each in ways if each), key=lambda packed: packed.high - packed.low, default=None)


def _in_order(
    containers: Sequence[NewContainer],
    start: int,
    end: int,
    alignment: int,
    fixed: Sequence[NewContainer] = (),
) -> Packed | None:
    """Each at the first place behind the last; None where that does not fit.

    Without `fixed` it always fits: nothing grows, so nothing stands behind its old place.
    """
    stay = list(fixed) or [each for each in containers if each.pinned]
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
    high = max([cursor, *(each.old.offset + each.size for each in stay)])
    return Packed(start, high, places)


def pieces(container: NewContainer, place: int) -> Iterator[Piece]:
    """What a container at `place` is made of, neighbours in the source as one piece."""
    if container.pinned:
        yield Piece(place, container.size, container.old.offset, device=True)
        return
    yield Piece(place, len(container.header), data=container.header)
    place += len(container.header)
    run_start = run_size = 0
    for entry in container.entries:
        new = container.replaced.get(entry.offset)
        size = _size(entry, container.replaced)
        if new is None and run_size and run_start + run_size == entry.offset:
            run_size += size
            continue
        if run_size:
            yield Piece(place, run_size, run_start, device=True)
            place += run_size
            run_size = 0
        if new is None:
            run_start, run_size = entry.offset, size
        else:
            yield Piece(place, len(new.header), data=new.header)
            yield Piece(place + len(new.header), new.size, new.spool, spool=True, device=True)
            place += size
    if run_size:
        yield Piece(place, run_size, run_start, device=True)
