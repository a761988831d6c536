"""Whether two libraries have the same host side, the places of their sections apart.

Device code of another size moves what stands behind it. So loaded sections are compared by their place in the table:
every byte must be equal, or belong to a word that differs by just as much as what it refers to has moved. Tables that
hold addresses (symbols, relocations, the dynamic section) are compared entry by entry, as section and offset.
"""

from __future__ import annotations

import bisect
import itertools
import re
import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cuwheel.changes.binaries.elf_references import SHT_RELR, relr_slots
from cuwheel.changes.binaries.pe_references import (
    ADR_FIELDS,
    BRANCH_FIELD,
    LOW_BITS,
    adr_offset,
    branch_offset,
    is_adr,
    is_adrp,
    is_branch,
    low_bits_scale,
    relocation_blocks,
)
from cuwheel.changes.binaries.pe_references import ARM64_PAGE as PAGE
from cuwheel_core.device_code.dynamic import SYMBOL
from cuwheel_core.device_code.elf import SHT_DYNAMIC, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_RELA, SHT_SYMTAB
from cuwheel_core.device_code.pe import DEBUG, EXECUTABLE, EXPORTS, RESOURCES, Pe
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.graft.subject import Subject
    from cuwheel_core.device_code.elf import Header
    from cuwheel_core.device_code.pe import Row
    from cuwheel_core.support.buffer import Buffer

_ALLOC, _EXEC = 0x2, 0x4
_RELA = struct.Struct("<QQq")
_PAIR = struct.Struct("<QQ")
_FIRST_RESERVED = 0xFF00
_RELATIVE = frozenset((8, 1027))
_SYMBOL_TABLES = frozenset((SHT_SYMTAB, SHT_DYNSYM))


def difference(base: Subject, donor: Subject) -> str:
    """The first place where the host sides are not the same, in words; empty where there is none."""
    if isinstance(base.file, Pe) and isinstance(donor.file, Pe):
        return _windows_difference(base, donor, base.file, donor.file)
    ours, theirs = _loaded(base), _loaded(donor)
    if [each.name for each in ours] != [each.name for each in theirs]:
        other = sorted({each.name for each in ours} ^ {each.name for each in theirs})
        return f"the loaded sections are not the same ({', '.join(other[:3]) or 'their order differs'})"
    areas = [Area(*each) for each in zip(ours, theirs, strict=True)]
    device = [Area(one, other) for one, other in zip(_device(base), _device(donor), strict=False)]
    moves = Moves(base, donor, [*areas, *device])
    for mine, its in zip(ours, theirs, strict=True):
        if (mine.type, mine.flags, mine.size) != (its.type, its.flags, its.size):
            return f"{mine.name} has {mine.size:,} bytes in the base, {its.size:,} in the donor"
    for mine, its in zip(ours, theirs, strict=True):
        # A hash of the whole file.
        if mine.type != SHT_NOBITS and not (mine.type == SHT_NOTE and mine.name == ".note.gnu.build-id"):
            at = _compared(base, donor, mine, its, moves)
            if at is not None:
                return f"{mine.name} is not the same at {at:#x}{_function(base, mine.address + at)}"
    return ""


def _loaded(subject: Subject) -> list[Header]:
    """The loaded sections in the order of the table, but for those of device code."""
    return [each for each in subject.elf.headers if each.flags & _ALLOC and each.name not in FATBIN_SECTIONS]


def _device(subject: Subject) -> list[Section]:
    return [each for each in subject.sections if each.name in FATBIN_SECTIONS]


def _compared(base: Subject, donor: Subject, mine: Header, its: Header, moves: Moves) -> int | None:
    """Where in the section the first difference is that nothing explains."""
    area = Area(mine, its)
    if mine.type in _SYMBOL_TABLES:
        return _symbols(base, donor, area)
    if mine.type == SHT_RELA:
        return _relocations(base, donor, area, moves)
    if mine.type == SHT_RELR:
        # Slots as addresses: how they are packed follows from where they are.
        both = [
            list(relr_slots(iter(memoryview(each.buffer.read(header.offset, header.size // 8 * 8)).cast("Q").tolist())))
            for each, header in ((base, area.ours), (donor, area.theirs))
        ]
        return 0 if len(both[0]) != len(both[1]) or not all(map(moves.explains, *both)) else None
    if mine.type == SHT_DYNAMIC:
        for at, (tag, value), (new_tag, new_value) in _rows(base, donor, area, _PAIR):
            if tag != new_tag or (value != new_value and not moves.explains(value, new_value)):
                return at
        return None
    fixed_width = base.elf.machine_name == "aarch64" and bool(mine.flags & _EXEC)
    return _first_difference(base.buffer, donor.buffer, area, moves, fixed_width=fixed_width)


def _symbols(base: Subject, donor: Subject, area: Area) -> int | None:
    for at, one, other in _rows(base, donor, area, SYMBOL):
        number, value, moved = one[3], one[4], 0
        if 0 < number < min(_FIRST_RESERVED, len(base.elf.headers)) and number < len(donor.elf.headers) and value:
            moved = donor.elf.headers[other[3]].address - base.elf.headers[number].address
            if base.elf.headers[number].name != donor.elf.headers[other[3]].name:
                return at
        elif one[3] != other[3]:
            return at
        if (*one[:3], value + moved, one[5]) != (*other[:3], other[4], other[5]):
            return at
    return None


def _relocations(base: Subject, donor: Subject, area: Area, moves: Moves) -> int | None:
    for at, (place, info, addend), (new_place, new_info, new_addend) in _rows(base, donor, area, _RELA):
        same = addend == new_addend if info not in _RELATIVE else moves.explains(addend, new_addend)
        if info != new_info or not same or not moves.explains(place, new_place):
            return at
    return None


def _rows(
    base: Subject, donor: Subject, area: Area, row: struct.Struct
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    for start in range(0, area.ours.size // row.size * row.size, row.size * 4096):
        count = min(row.size * 4096, area.ours.size // row.size * row.size - start)
        one = base.buffer.read(area.ours.offset + start, count)
        other = donor.buffer.read(area.theirs.offset + start, count)
        yield from zip(itertools.count(start, row.size), row.iter_unpack(one), row.iter_unpack(other), strict=False)


def _function(base: Subject, address: int) -> str:
    """The symbol that an address is in, if a table tells."""
    for header in base.elf.headers:
        if header.type in _SYMBOL_TABLES and header.link < len(base.elf.headers):
            names = base.elf.headers[header.link]
            for row in SYMBOL.iter_unpack(base.buffer.read(header.offset, header.size // SYMBOL.size * SYMBOL.size)):
                name, _, _, section, value, size = row
                if section and value <= address < value + size:
                    text = base.buffer.read(names.offset + name, min(200, max(names.size - name, 0)))
                    return f", in {text.partition(bytes(1))[0].decode('utf-8', 'replace')}"
    return ""


# Whether two Windows libraries have the same host side, the places of their sections apart.
#
# What tells one build from another (times, the name and key of the debug file) does not count.

_RELOCATIONS = ".reloc"
_DEBUG = struct.Struct("<IIHHIIII")
_MOST_DEBUG = 1 << 10
_TIME_AT, _TIME = 4, 4  # of the directories of exports and resources


def _windows_difference(base: Subject, donor: Subject, ours: Pe, theirs: Pe) -> str:
    """What `difference` finds, for Windows libraries."""
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
        at = _first_difference(*blanked, area, moves, fixed_width=fixed_width, image=ours.image_base)
        if at is not None:
            return f"{name} is not the same at {at:#x}"
    return _windows_relocations(ours, theirs, moves)


def _host(subject: Subject, file: Pe) -> Iterator[tuple[str, Row]]:
    """Relocations are compared as addresses, not as bytes."""
    for section in subject.sections:
        if section.name not in FATBIN_SECTIONS and section.name != _RELOCATIONS:
            yield section.name, file.rows[section.number]


def _place(name: str, row: Row, file: Pe, size: int) -> Section:
    return Section(0, name, "data", file.image_base + row.address, row.offset, size)


def _windows_relocations(ours: Pe, theirs: Pe, moves: Moves) -> str:
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


# Where the sections of one library are in another build of it.

_NEIGHBOURS = 8  # sections, some of them empty or tiny, that may be near a place


class Place(Protocol):
    """A loaded section, of whatever format."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class Area(NamedTuple):
    """A loaded section in both files."""

    ours: Place
    theirs: Place

    @property
    def moved(self) -> int:
        return self.theirs.address - self.ours.address


class Moves:
    """Where in the donor stands what is at an address of the base."""

    def __init__(self, base: Subject, donor: Subject, areas: Sequence[Area]) -> None:
        self._areas = sorted(areas, key=lambda each: each.ours.address)
        self._starts = [each.ours.address for each in self._areas]
        self._containers = dict(
            zip(
                _container_addresses(base), _container_addresses(donor), strict=False
            )  # as many of each: that was asked first
        )

    @property
    def all(self) -> frozenset[int]:
        return frozenset(each.moved for each in self._areas)

    def near(self, address: int, slack: int) -> Iterator[int]:
        """Yields by how much what is around an address has moved: where sections meet there are several answers."""
        if (container := self._containers.get(address)) is not None:
            yield container - address
            return
        index = bisect.bisect_right(self._starts, address + slack) - 1
        for area in reversed(self._areas[max(index - _NEIGHBOURS, 0) : index + 1]):
            if area.ours.address - slack <= address <= area.ours.address + area.ours.size + slack:
                yield area.moved

    def explains(self, address: int, other: int, slack: int = 0) -> bool:
        """Whether `other` is in the donor what `address` is in the base."""
        return any(other - address == each for each in self.near(address, slack))


def _container_addresses(subject: Subject) -> list[int]:
    headers = [each for each in subject.sections if each.name in FATBIN_SECTIONS]
    found = []
    for index in subject.order:
        at = subject.walk.containers[index].offset
        home = next(each for each in headers if each.offset <= at < each.offset + each.size)
        found.append(at - home.offset + home.address)
    return found


# Code and data of two builds compared: equal, or words that differ by just as much as what they refer to has moved.

_WORD = struct.Struct("<Q")
_HALF = struct.Struct("<i")
_AT_ONCE = 1 << 20
_OVERLAP = 16
_DIFFERING = re.compile(rb"[^\0]+")
_SLACK = 16  # of what an instruction refers to: its own end, and an offset into or before an object


def _first_difference(
    base: Buffer, donor: Buffer, area: Area, moves: Moves, *, fixed_width: bool = False, image: int | None = None
) -> int | None:
    """Where in a section of code or data the first difference is that nothing explains.

    `fixed_width`: it is of instructions of four bytes. `image`: the address that words of four bytes may be relative
    to, in a format that has such. A piece at a time, pieces overlapping: a word may stand on their border.
    """
    origins = [(area.ours.address, area.moved)]  # what words of four bytes are relative to, and how far that moved
    if image is not None:
        origins.append((image, 0))
    done = 0
    for start in range(0, area.ours.size, _AT_ONCE):
        low = max(start - _OVERLAP, 0)
        count = min(start + _AT_ONCE + _OVERLAP, area.ours.size) - low
        one = base.read(area.ours.offset + low, count)
        other = donor.read(area.theirs.offset + low, count)
        if one == other:
            continue
        differing = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
        for run in _DIFFERING.finditer(differing.to_bytes(count, "little")):
            at = max(run.start(), done - low)
            end = run.end()
            while at < end:
                if at + low >= start + _AT_ONCE:  # the next piece has all of it
                    break
                explained = _end_of_explained_word(one, other, at, area, low, moves, None if fixed_width else origins)
                if explained is None:
                    return low + at
                at = explained
                done = low + at
    return None


def _end_of_explained_word(
    one: bytes, other: bytes, at: int, area: Area, low: int, moves: Moves, origins: Sequence[tuple[int, int]] | None
) -> int | None:
    """The end of the word around `at` that accounts for the difference; None where there is none."""
    if origins is None:
        place = at // 4 * 4
        here = area.ours.address + low + place
        ours, theirs = (int.from_bytes(each[place : place + 4], "little") for each in (one, other))
        return place + 4 if _instruction_explained(ours, theirs, here, area.moved, moves) else None
    for place in range(at, max(at - 8, -1), -1):
        if place + 8 <= len(one) and place > at - 8:
            (ours,), (theirs,) = _WORD.unpack_from(one, place), _WORD.unpack_from(other, place)
            if moves.explains(ours, theirs):
                return place + 8
        if place + 4 <= len(one) and place > at - 4:
            (near,), (far,) = _HALF.unpack_from(one, place), _HALF.unpack_from(other, place)
            # Relative to where the word is, as in instructions and unwind tables, or to one of the origins.
            for origin, away in ((area.ours.address + low + place, area.moved), *origins):
                if any(far - near == moved - away for moved in moves.near(origin + near, _SLACK)):
                    return place + 4
    return None


# Whether two AArch64 instructions differ just as what they refer to has moved.


def _instruction_explained(ours: int, theirs: int, place: int, moved: int, moves: Moves) -> bool:
    """`place`: where the instruction is in the base; `moved`: how much further it is in the donor."""
    relative = (ours ^ theirs) & ~ADR_FIELDS == 0
    if relative and is_adrp(ours):
        page = place // PAGE * PAGE + adr_offset(ours) * PAGE
        other = (place + moved) // PAGE * PAGE + adr_offset(theirs) * PAGE
        nearest = set(moves.near(page, PAGE))
        return any(other in {(page + each) // PAGE * PAGE, (page + PAGE - 1 + each) // PAGE * PAGE} for each in nearest)
    if relative and is_adr(ours):
        return moves.explains(place + adr_offset(ours), place + moved + adr_offset(theirs), 16)
    if is_branch(ours) and (ours ^ theirs) & ~BRANCH_FIELD == 0:
        return moves.explains(place + branch_offset(ours), place + moved + branch_offset(theirs))
    if (ours ^ theirs) & ~LOW_BITS:
        return False
    scale = low_bits_scale(ours)
    if scale is None:
        return False
    step = (((theirs & LOW_BITS) - (ours & LOW_BITS)) >> 10 << scale) % PAGE
    return any(step == each % PAGE for each in moves.all)
