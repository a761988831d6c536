"""The tables of an ELF file as a layout wants them: patches, each at its place in the new file. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cuwheel.changes.binaries.geometry import Block, Shift, up, without
from cuwheel.changes.binaries.layout import Table
from cuwheel.changes.binaries.loader import MOVABLE_TAGS
from cuwheel.changes.binaries.zones import page_of
from cuwheel.device_code.dynamic import SYMBOL
from cuwheel.device_code.elf import HEADER_SIZE, PF_X, PT_DYNAMIC, PT_LOAD, SHT_NOBITS
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.changes.binaries.layout import Layout
    from cuwheel.changes.binaries.references import Reference, SymbolAt
    from cuwheel.device_code.elf import Elf

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PAIR = struct.Struct("<QQ")
_WORD = struct.Struct("<Q")
_PT_PHDR = 6
_FIRST_RESERVED = 0xFF00  # section number: those from here on mean something else
_STT_SECTION, _TYPE_MASK = 3, 15
_PF_R = 0x4

Patch: TypeAlias = tuple[int, bytes]


class _Part(NamedTuple):
    """A part of a section: its number in the new table, from and to in the original file. `blank`: of zeros."""

    number: int
    start: int
    end: int
    blank: bool = False


class Tables(NamedTuple):
    """The file's header and both tables, as they are."""

    header: tuple[bytes, int, int, int, int, int, int, int, int, int, int, int, int, int]
    segments: tuple[tuple[int, int, int, int, int, int, int, int], ...]
    sections: tuple[tuple[int, int, int, int, int, int, int, int, int, int], ...]
    programs: Table
    sections_at: int

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        end = self.sections_at + len(self.sections) * _SECTION.size
        return (0, HEADER_SIZE), (self.programs.offset, self.programs.end), (self.sections_at, end)


def read(elf: Elf) -> Tables:
    """What `elf` was read from, with the fields that reading does not need."""
    header = _HEADER.unpack(elf.buffer.read(0, HEADER_SIZE))
    programs = Table(header[5], len(elf.segments))
    sections = elf.buffer.read(header[6], len(elf.headers) * _SECTION.size)
    return Tables(
        header=header,
        segments=tuple(_SEGMENT.iter_unpack(elf.buffer.read(programs.offset, programs.end - programs.offset))),
        sections=tuple(_SECTION.iter_unpack(sections)),
        programs=programs,
        sections_at=header[6],
    )


def patches(
    elf: Elf,
    tables: Tables,
    layout: Layout,
    moved: Mapping[int, int],
    pointers: Sequence[Reference],
    symbols: Sequence[SymbolAt],
) -> Iterator[Patch]:
    """`moved`: from the old address of a container to its new one."""
    shift = Shift(layout.cuts, layout.block)
    segments = _aligned(elf, tables, tuple(_segments(elf, tables, layout, shift)))
    yield 0, _file_header(elf, tables, layout, len(segments))
    table = b"".join(_SEGMENT.pack(*each) for each in segments)
    at = shift.placed(tables.programs.offset)
    yield at, table
    behind = tables.programs.offset + len(table)
    before = layout.block.end if layout.block else tables.programs.end
    unused = min([before, *(cut.start for cut in layout.cuts if cut.start >= behind)]) - behind
    yield at + len(table), bytes(max(unused, 0))
    parts = _parts(tables, layout)
    sections = b"".join(_SECTION.pack(*each) for each in _sections(elf, tables, layout, parts))
    yield sections_at(elf, tables, layout), sections
    yield from _pointers(elf, pointers, moved, shift)
    yield from _symbols(elf, symbols, moved, layout, parts)
    if layout.block:
        yield from _dynamic(elf, layout.block, shift)


def sections_at(elf: Elf, tables: Tables, layout: Layout) -> int:
    """Where the section headers go in the new file: at its end where there are more of them than before."""
    shift = Shift(layout.cuts, layout.block)
    end = tables.sections_at + len(tables.sections) * _SECTION.size
    if not _more_sections(tables, layout) or end + _SECTION.size > elf.buffer.size:
        return shift(tables.sections_at)
    return up(_content_end(elf, layout), _WORD.size)


def size(elf: Elf, tables: Tables, layout: Layout) -> int:
    """Of the new file."""
    count = len(tables.sections) + _more_sections(tables, layout)
    end = sections_at(elf, tables, layout) + count * _SECTION.size
    return max(_content_end(elf, layout), end if _more_sections(tables, layout) else 0)


def _content_end(elf: Elf, layout: Layout) -> int:
    return Shift(layout.cuts, layout.block).placed(layout.annex.end if layout.annex else elf.buffer.size)


def _more_sections(tables: Tables, layout: Layout) -> int:
    return sum(len(parts) - 1 for parts in _parts(tables, layout).values())


def _parts(tables: Tables, layout: Layout) -> dict[int, list[_Part]]:
    """What each section of device code becomes: itself and, behind a cut, sections more at the table's end.

    What is loaded as zeros is a section without bytes of its own, so that tools which write segments by the sections
    in them keep it.
    """
    found: dict[int, list[_Part]] = {}
    following = len(tables.sections)
    for number in sorted([*layout.packed, *layout.emptied]):
        for start, end, blank in _with_blanks(tables, layout, number):
            known = found.setdefault(number, [])
            known.append(_Part(following if known else number, start, end, blank))
            following += len(known) > 1
    return found


def _with_blanks(tables: Tables, layout: Layout, number: int) -> list[tuple[int, int, bool]]:
    start, size = tables.sections[number][4:6]
    cuts = [each for each in layout.cuts if each.zeros]
    blanks = [(each.start, each.end, True) for each in cuts if each.size and start <= each.start < start + size]
    whole = layout.parts(number) if number in layout.packed else without(start, start + size, cuts)
    return sorted([*((low, high, False) for low, high in whole), *blanks])


def _file_header(elf: Elf, tables: Tables, layout: Layout, count: int) -> bytes:
    fields = list(tables.header)
    fields[5] = Shift(layout.cuts, layout.block).placed(tables.programs.offset)
    fields[6] = sections_at(elf, tables, layout)
    fields[10] = count
    fields[12] = tables.header[12] + _more_sections(tables, layout)
    if _more_sections(tables, layout) and len(tables.sections) + _more_sections(tables, layout) >= _FIRST_RESERVED:
        raise MalformedError(elf.buffer.name, "it has more sections than its header can hold")
    return _HEADER.pack(*fields)


def _segments(elf: Elf, tables: Tables, layout: Layout, shift: Shift) -> Iterator[tuple[int, ...]]:
    loads = [number for number, each in enumerate(tables.segments) if each[0] == PT_LOAD]
    count = len(tables.segments) + bool(layout.annex)
    count += sum(len(_load_parts(tables.segments[number], layout)) - 1 for number in loads)
    for number, row in enumerate(tables.segments):
        kind, flags, offset, address, physical, stored, memory, alignment = row
        if kind == PT_LOAD:
            yield from _split(elf, number, row, layout, shift)
            if layout.annex and number == max(loads, key=lambda each: tables.segments[each][3]):
                start, end, place, page = layout.annex
                yield kind, _PF_R, shift.placed(start), place, place, end - start, end - start, page
            continue
        if kind == _PT_PHDR:
            size = count * _SEGMENT.size
            yield kind, flags, shift.placed(offset), address, physical, size, size, alignment
            continue
        if not stored:
            yield kind, flags, shift.placed(offset), address, physical, stored, memory, alignment
            continue
        if tuple(without(offset, offset + stored, layout.cuts)) != ((offset, offset + stored),):
            raise MalformedError(elf.buffer.name, f"a program header of type {kind:#x} covers device code")
        delta = _moved_by(layout.block, offset)
        yield kind, flags, shift(offset), address + delta, physical + delta, stored, memory, alignment


def _aligned(elf: Elf, tables: Tables, rows: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """A library is placed by the largest alignment of its segments: where that is lost, another segment takes it."""
    wanted = max(row[7] for row in tables.segments if row[0] == PT_LOAD)
    if any(row[0] == PT_LOAD and row[7] >= wanted for row in rows):
        return rows
    able = next((n for n, row in enumerate(rows) if row[0] == PT_LOAD and (row[2] - row[3]) % wanted == 0), None)
    if able is None:
        raise MalformedError(elf.buffer.name, f"nothing in it could be aligned to {wanted:#x} bytes any more")
    return (*rows[:able], (*rows[able][:7], wanted), *rows[able + 1 :])


def _split(elf: Elf, number: int, row: tuple[int, ...], layout: Layout, shift: Shift) -> Iterator[tuple[int, ...]]:
    kind, flags, offset, address, physical, stored, memory, alignment = row
    parts = _load_parts(row, layout)
    zeros = {each.start: each.end for each in layout.cuts if each.zeros and each.size}
    for start, end in parts:
        # Loaders go by segments: what a section's flags say of the rest of a file proves nothing. Device code is
        # not run by the host.
        flags = row[1] & ~PF_X if len(parts) > 1 and _is_device_code(elf, layout, start, end) else row[1]
        until = zeros.get(end, end)
        extra = until - end + (memory - stored if until == offset + stored else 0)
        place = shift.placed(start)
        step = start - offset
        if alignment > 1 and (place - address - step) % alignment:
            alignment = page_of(elf, elf.segments[number]) or 0
            if not alignment or (place - address - step) % alignment:
                raise MalformedError(elf.buffer.name, "a segment would no longer be page-aligned")
        yield kind, flags, place, address + step, physical + step, end - start, end - start + extra, alignment


def _load_parts(row: tuple[int, ...], layout: Layout) -> tuple[tuple[int, int], ...]:
    """What is left of a segment; nothing where all of it was device code that went elsewhere."""
    offset, stored, memory = row[2], row[5], row[6]
    parts = tuple(without(offset, offset + stored, layout.cuts))
    return parts if parts or (stored and memory == stored) else ((offset, offset),)


def _is_device_code(elf: Elf, layout: Layout, start: int, end: int) -> bool:
    """Whether a part of the file lies within sections of device code, and what was moved to the end of one."""
    for each in sorted(
        (elf.headers[number] for number in (*layout.packed, *layout.emptied)), key=lambda one: one.offset
    ):
        if each.offset <= start < each.offset + each.size:
            start = each.offset + each.size
    return end <= start


def _sections(
    elf: Elf, tables: Tables, layout: Layout, parts: Mapping[int, Sequence[_Part]]
) -> Iterator[tuple[int, ...]]:
    added = {}
    shift = Shift(layout.cuts, layout.block)
    for number, row in enumerate(tables.sections):
        name, kind, flags, address, offset, size, link, info, alignment, width = row
        if number in parts:
            for part in parts[number]:
                where = layout.address(elf.headers[number], part.start)
                place = where, shift.placed(part.start), part.end - part.start
                blank = SHT_NOBITS if part.blank else kind
                added[part.number] = (name, blank, flags, *place, link, info, alignment, width)
            yield added.pop(number)
            continue
        if kind:
            delta = _moved_by(layout.block, offset) if kind != SHT_NOBITS and size else 0
            address += delta
            offset = shift(offset) if delta else shift.placed(offset)
        yield name, kind, flags, address, offset, size, link, info, alignment, width
    yield from added.values()


def _moved_by(block: Block | None, offset: int) -> int:
    """How far the address of what stands at `offset` moves."""
    return block.address_delta if block and block.holds(offset) else 0


def _pointers(elf: Elf, pointers: Sequence[Reference], moved: Mapping[int, int], shift: Shift) -> Iterator[Patch]:
    for each in pointers:
        new = moved.get(each.target, each.target)
        if new == each.target:
            continue
        data = _WORD.pack(new)
        if each.addend is not None:
            yield shift(each.addend), data
        # Some linkers write the address in place too, and prelinked files rest on it.
        if each.addend is None or _WORD.unpack(elf.buffer.read(each.slot, _WORD.size))[0] == each.target:
            yield shift(each.slot), data


def _symbols(
    elf: Elf,
    symbols: Sequence[SymbolAt],
    moved: Mapping[int, int],
    layout: Layout,
    parts: Mapping[int, Sequence[_Part]],
) -> Iterator[Patch]:
    """Local names of containers follow them; a name of anything else in the section stays within its bounds."""
    shift = Shift(layout.cuts, layout.block)
    for each in symbols:
        name, info, other, section, value, size = SYMBOL.unpack(elf.buffer.read(each.at, SYMBOL.size))
        if delta := _moved_by(layout.block, elf.headers[section].offset if section < len(elf.headers) else 0):
            value += delta
        elif section in layout.packed:
            header = elf.headers[section]
            first, *others = parts[section]
            if info & _TYPE_MASK == _STT_SECTION:
                value = layout.address(header, first.start)
            else:
                value = moved.get(value, value)
                first = next((part for part in reversed(others) if layout.address(header, part.start) <= value), first)
                start = layout.address(header, first.start)
                value = min(max(value, start), start + first.end - first.start)
            section = first.number
            size = min(size, layout.address(header, first.start) + first.end - first.start - value)
        elif section in parts:
            base = elf.headers[section].address - elf.headers[section].offset
            section = next(part.number for part in reversed(parts[section]) if base + part.start <= value)
        else:
            continue
        yield shift(each.at), SYMBOL.pack(name, info, other, section, value, size)


def _dynamic(elf: Elf, block: Block, shift: Shift) -> Iterator[Patch]:
    place = next((each for each in elf.segments if each.type == PT_DYNAMIC), None)
    if place is None:
        return
    size = place.file_size // _PAIR.size * _PAIR.size
    for index, (tag, value) in enumerate(_PAIR.iter_unpack(elf.buffer.read(place.offset, size))):
        if tag == 0:
            return
        at = elf.addresses.offset_of(value) if tag in MOVABLE_TAGS else None
        if at is not None and (delta := _moved_by(block, at)):
            yield shift(place.offset) + index * _PAIR.size, _PAIR.pack(tag, value + delta)
