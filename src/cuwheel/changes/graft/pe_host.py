"""Whether two Windows libraries have the same host side, the places of their sections apart.

What tells one build from another (times, the name and key of the debug file) does not count.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cuwheel.changes.binaries.pe_references import relocation_blocks
from cuwheel.changes.graft import differences
from cuwheel.changes.graft.moves import Area, Moves
from cuwheel.device_code.pe import DEBUG, EXECUTABLE, EXPORTS, RESOURCES
from cuwheel.device_code.sections import FATBIN_SECTIONS, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.graft.subject import Subject
    from cuwheel.device_code.pe import Pe, Row
    from cuwheel.support.buffer import Buffer

_RELOCATIONS = ".reloc"
_DEBUG = struct.Struct("<IIHHIIII")
_MOST_DEBUG = 1 << 10
_TIME_AT, _TIME = 4, 4  # of the directories of exports and resources


def difference(base: Subject, donor: Subject, ours: Pe, theirs: Pe) -> str:
    """As `host.difference`."""
    mine, its = (list(_host(subject, file)) for subject, file in ((base, ours), (donor, theirs)))
    if [(name, row.traits) for name, row in mine] != [(name, row.traits) for name, row in its]:
        other = sorted({name for name, _ in mine} ^ {name for name, _ in its})
        return f"the loaded sections are not the same ({', '.join(other[:3]) or 'their order differs'})"
    for (name, row), (_, other_row) in zip(mine, its, strict=True):
        if row.memory != other_row.memory:
            return f"{name} has {row.memory:,} bytes in the base, {other_row.memory:,} in the donor"
    areas = [
        Area(_place(name, row, ours, row.memory), _place(name, other, theirs, other.memory))
        for (name, row), (_, other) in zip(mine, its, strict=True)
    ]
    device = [Area(one, other) for one, other in zip(_device(base), _device(donor), strict=False)]
    moves = Moves(base, donor, [*areas, *device])
    blanked = _Blanked(ours), _Blanked(theirs)
    for (name, row), (_, other_row) in zip(mine, its, strict=True):
        size = min(row.stored, other_row.stored, row.memory or row.stored)
        area = Area(_place(name, row, ours, size), _place(name, other_row, theirs, size))
        fixed_width = ours.machine == "aarch64" and bool(row.traits & EXECUTABLE)
        at = differences.first(*blanked, area, moves, fixed_width=fixed_width, image=ours.image_base)
        if at is not None:
            return f"{name} is not the same at {at:#x}"
    return _relocations(ours, theirs, moves)


def _host(subject: Subject, file: Pe) -> Iterator[tuple[str, Row]]:
    """Relocations are compared as addresses, not as bytes."""
    for section in subject.sections:
        if section.name not in FATBIN_SECTIONS and section.name != _RELOCATIONS:
            yield section.name, file.rows[section.number]


def _device(subject: Subject) -> list[Section]:
    return [each for each in subject.sections if each.name in FATBIN_SECTIONS]


def _place(name: str, row: Row, file: Pe, size: int) -> Section:
    return Section(0, name, "data", file.image_base + row.address, row.offset, size)


def _relocations(ours: Pe, theirs: Pe, moves: Moves) -> str:
    both = [
        [file.image_base + slot for _, slots in relocation_blocks(file) for slot in slots] for file in (ours, theirs)
    ]
    if len(both[0]) != len(both[1]):
        return f"the base has {len(both[0]):,} relocations, the donor {len(both[1]):,}"
    wrong = next((one for one, other in zip(*both, strict=True) if not moves.explains(one, other)), None)
    return "" if wrong is None else f"the relocation at {wrong:#x} is not the same"


class _Blanked:
    """A file as if what tells its build were zeros."""

    def __init__(self, file: Pe) -> None:
        self.name, self.size = file.buffer.name, file.buffer.size
        self._buffer: Buffer = file.buffer
        self._blank: Sequence[tuple[int, int]] = tuple(_identity(file))

    def read(self, offset: int, count: int) -> bytes:
        data = self._buffer.read(offset, count)
        for start, end in self._blank:
            low, high = max(start - offset, 0), min(end - offset, count)
            if low < high:
                data = data[:low] + bytes(high - low) + data[high:]
        return data

    def close(self) -> None:
        pass


def _identity(file: Pe) -> Iterator[tuple[int, int]]:
    for number in (EXPORTS, RESOURCES):
        place, size = file.directory(number)
        if size and (at := file.addresses.offset_of(place)) is not None:
            yield at + _TIME_AT, at + _TIME_AT + _TIME
    place, size = file.directory(DEBUG)
    at = file.addresses.offset_of(place) if size else None
    if at is None:
        return
    yield at, at + size
    for index in range(min(size // _DEBUG.size, _MOST_DEBUG)):
        *_, length, _, offset = _DEBUG.unpack(file.buffer.read(at + index * _DEBUG.size, _DEBUG.size))
        yield offset, offset + length
