"""Whether two libraries have the same host side, the places of their sections apart.

Device code of another size moves what stands behind it. So loaded sections are compared by their place in the table:
every byte must be equal, or belong to a word that differs by just as much as what it refers to has moved. Tables that
hold addresses (symbols, relocations, the dynamic section) are compared entry by entry, as section and offset.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from cuwheel.changes.binaries.elf_references import SHT_RELR, relr_slots
from cuwheel.changes.graft import differences, pe_host
from cuwheel.changes.graft.moves import Area, Moves
from cuwheel.device_code.dynamic import SYMBOL
from cuwheel.device_code.elf import SHT_DYNAMIC, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_RELA, SHT_SYMTAB
from cuwheel.device_code.pe import Pe
from cuwheel.device_code.sections import FATBIN_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.changes.graft.subject import Subject
    from cuwheel.device_code.elf import Header

_ALLOC, _EXEC = 0x2, 0x4
_RELA = struct.Struct("<QQq")
_PAIR = struct.Struct("<QQ")
_FIRST_RESERVED = 0xFF00
_RELATIVE = frozenset((8, 1027))
_SYMBOL_TABLES = frozenset((SHT_SYMTAB, SHT_DYNSYM))


def difference(base: Subject, donor: Subject) -> str:
    """The first place where the host sides are not the same, in words; empty where there is none."""
    if isinstance(base.file, Pe) and isinstance(donor.file, Pe):
        return pe_host.difference(base, donor, base.file, donor.file)
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
        if mine.type != SHT_NOBITS and not _is_identity(mine):
            at = _compared(base, donor, mine, its, moves)
            if at is not None:
                return f"{mine.name} is not the same at {at:#x}{_function(base, mine.address + at)}"
    return ""


def _loaded(subject: Subject) -> list[Header]:
    """In the order of their addresses in the table; device code apart."""
    return [each for each in subject.elf.headers if each.flags & _ALLOC and each.name not in FATBIN_SECTIONS]


def _device(subject: Subject) -> list[Header]:
    return [each for each in subject.elf.headers if each.name in FATBIN_SECTIONS]


def _is_identity(section: Header) -> bool:
    """A hash of the whole file."""
    return section.type == SHT_NOTE and section.name == ".note.gnu.build-id"


def _compared(base: Subject, donor: Subject, mine: Header, its: Header, moves: Moves) -> int | None:
    """Where in the section the first difference is that nothing explains."""
    area = Area(mine, its)
    if mine.type in _SYMBOL_TABLES:
        return _symbols(base, donor, area)
    if mine.type == SHT_RELA:
        return _relocations(base, donor, area, moves)
    if mine.type == SHT_RELR:
        return _packed_relocations(base, donor, area, moves)
    if mine.type == SHT_DYNAMIC:
        return _dynamic(base, donor, area, moves)
    fixed_width = base.elf.machine_name == "aarch64" and bool(mine.flags & _EXEC)
    return differences.first(base.buffer, donor.buffer, area, moves, fixed_width=fixed_width)


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


def _packed_relocations(base: Subject, donor: Subject, area: Area, moves: Moves) -> int | None:
    """Slots as addresses: how they are packed follows from where they are."""
    both = [
        list(relr_slots(iter(memoryview(each.buffer.read(header.offset, header.size // 8 * 8)).cast("Q").tolist())))
        for each, header in ((base, area.ours), (donor, area.theirs))
    ]
    return 0 if len(both[0]) != len(both[1]) or not all(map(moves.explains, *both)) else None


def _dynamic(base: Subject, donor: Subject, area: Area, moves: Moves) -> int | None:
    for at, (tag, value), (new_tag, new_value) in _rows(base, donor, area, _PAIR):
        if tag != new_tag or (value != new_value and not moves.explains(value, new_value)):
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
