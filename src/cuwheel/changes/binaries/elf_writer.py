"""An ELF file with other device code: where everything goes, and its tables as the layout wants them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import elf_layout, elf_references
from cuwheel.changes.binaries.draft import (
    Block,
    Cut,
    Draft,
    Kept,
    Piece,
    Section,
    Shift,
    must_lead_to_containers,
    no_room,
    pack_behind,
    pack_containers,
    rewritten_pieces,
    round_up,
    uncut_parts,
)
from cuwheel.changes.binaries.elf_layout import Annex, Layout, Table, page_of
from cuwheel.changes.binaries.elf_references import MOVABLE_TAGS, Reference, SymbolAt
from cuwheel.changes.binaries.plan import PAGES
from cuwheel_core.device_code import elf
from cuwheel_core.device_code.dynamic import SYMBOL
from cuwheel_core.device_code.elf import HEADER_SIZE, PF_X, PT_DYNAMIC, PT_LOAD, SHT_NOBITS, Elf
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, disjoint
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel.changes.binaries.draft import Emptied, NewContainer, Packed, Patch
    from cuwheel_core.device_code.libraries import Registration


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PAIR = struct.Struct("<QQ")
_WORD = struct.Struct("<Q")
_PT_PHDR = 6
_FIRST_RESERVED = 0xFF00  # section number: those from here on mean something else
_STT_SECTION, _TYPE_MASK = 3, 15
_PF_R = 0x4
_TYPES = (2, 3)  # executables and shared objects; an object file has yet to be linked
_LEAST_ALIGNMENT, _MOST_ALIGNMENT = 8, 4096
_TRAILING = 16  # zeros that some tools leave behind the last table


def draft_elf(
    file: Elf, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before.

    Raises MalformedError, with what it is about the file that forbids changing it.
    """
    # What the loader relocates is no device code, whatever it looks like.
    if (address := next(elf_references.addresses_written(file, list(_addresses(file, blank))), None)) is not None:
        raise MalformedError(file.buffer.name, f"its loader writes into what seems to be device code, at {address:#x}")
    packed, annex = _packed(file, containers)
    changed = [(header.address, header.address + header.size) for header in (file.headers[each] for each in packed)]
    elf_references.headers_must_agree(file, [file.headers[each] for each in packed])
    pointers = tuple(elf_references.pointers_into(file, changed))
    tables = read_tables(file)
    made = elf_layout.plan_layout(file, tables.programs, tables.places, packed, blank, annex)
    shift = Shift(made.cuts, made.block)
    moved, placed = _moves(file, made, shift)
    _check_pointers(file, pointers, containers, moved)
    split = [(each.address, each.address + each.size) for each in (file.headers[number] for number in made.emptied)]
    moving = [*changed, *split, *_block_addresses(file, made)]
    symbols = tuple(elf_references.symbols_in(file, moving))
    # A name that others can ask for may be how the library's own code finds a container: that must not move.
    for each in symbols:
        if each.exported and any(start <= each.value < end for start, end in changed):
            raise MalformedError(file.buffer.name, f"it exports a symbol in its device code, at {each.value:#x}")
    try:
        patches = tuple(table_patches(file, tables, made, moved, pointers, symbols))
    except struct.error as error:
        raise MalformedError(file.buffer.name, "its tables contain invalid numbers") from error
    return Draft(
        old_size=file.buffer.size,
        containers=containers,
        registration=registration,
        emptied=blank,
        replacements={},
        placed=placed,
        pieces=tuple(_pieces(file, made, containers, blank, shift)),
        patches=patches,
        shift=shift,
        size=new_size(file, tables, made),
        findings=(no_room(made.zeros, "program headers"),) if made.zeros else (),
    )


def check_elf(file: Elf) -> None:
    """Raises MalformedError, with what it is about the file that forbids changing it."""
    name = file.buffer.name
    if file.machine_name not in PAGES:
        raise MalformedError(
            name, f"only binaries for {' and '.join(PAGES)} can be rewritten, and this one is for {file.machine_name}"
        )
    if file.type not in _TYPES or not any(each.type == elf.PT_LOAD for each in file.segments):
        raise MalformedError(name, "it is not linked yet: leave device code out when building it instead")
    end = elf.extent(file)
    behind = file.buffer.size - end
    if behind > _TRAILING or any(file.buffer.read(end, behind)):
        raise MalformedError(name, f"{behind:,} bytes follow the end of the file, which may be a signature")
    if disjoint(file.sections())[1]:
        raise MalformedError(name, "its sections overlap")
    programs = read_tables(file).programs
    elf_references.must_have_all_segments(file, programs.offset, programs.end)


def _packed(file: Elf, containers: Sequence[NewContainer]) -> tuple[dict[int, Packed], Annex | None]:
    """Each section that something changes in; the annex where one has grown beyond its place."""
    packed, annex = {}, elf_layout.annex_start(file)
    for header in file.headers:
        inside = [each for each in containers if header.offset <= each.old.offset < header.offset + header.size]
        if header.name not in FATBIN_SECTIONS or not any(each.size != each.old.size for each in inside):
            continue
        if elf_layout.segment_of(file, header) is None:
            raise MalformedError(file.buffer.name, f"{header.name} is not loaded in one piece")
        wanted = read_tables(file).sections[header.number][8]
        alignment = min(max(wanted, _LEAST_ALIGNMENT), _MOST_ALIGNMENT)
        if sum(each.size for each in inside) > sum(each.old.size for each in inside):
            packed[header.number] = pack_behind(inside, annex.end, alignment)
            annex = annex._replace(end=(packed[header.number].annexed or (0, annex.end))[1])
        elif found := pack_containers(inside, header.offset, header.offset + header.size, alignment):
            packed[header.number] = found
        else:
            raise MalformedError(file.buffer.name, f"{header.name} has an alignment that its contents do not follow")
    return packed, annex if annex.end > annex.start else None


def _moves(file: Elf, made: Layout, shift: Shift) -> tuple[dict[int, int], dict[int, int]]:
    """From the old address of a container to the new one, and from its old offset to the new one."""
    moved, placed = {}, {}
    for number, each in made.packed.items():
        header = file.headers[number]
        for old, new in each.places.items():
            moved[header.address + old - header.offset] = made.address(header, new)
            placed[old] = shift.placed(new)
    return moved, placed


def _check_pointers(
    file: Elf, pointers: Sequence[Reference], containers: Sequence[NewContainer], moved: Mapping[int, int]
) -> None:
    must_lead_to_containers(
        file.buffer.name, [each.target for each in pointers], file.addresses.offset_of, containers, moved
    )
    if file.type == elf_references.TYPE_EXECUTABLE:
        moving = [old for old, new in moved.items() if old != new]
        if (word := next(elf_references.words_like(file, moving), None)) is not None:
            raise MalformedError(file.buffer.name, f"its data seems to refer to a container too, at {word:#x}")


def _block_addresses(file: Elf, made: Layout) -> Iterator[tuple[int, int]]:
    if made.block:
        for header in file.headers:
            if header.address and made.block.holds(header.offset):
                yield header.address, header.address + max(header.size, 1)


def _pieces(
    file: Elf, made: Layout, containers: Sequence[NewContainer], blank: Sequence[Emptied], shift: Shift
) -> Iterator[Piece]:
    gone = [*made.cuts, *(Cut(each.start - len(each.header), each.end) for each in blank)]
    headers = [(file.headers[number], packed) for number, packed in made.packed.items()]
    sections = [Section(header.offset, header.offset + header.size, packed) for header, packed in headers]
    yield from rewritten_pieces(Kept(file.buffer.size, gone, shift, shift.placed), sections, containers, blank)
    if made.block:
        yield Piece(shift.placed(made.block.to), made.block.end - made.block.start, made.block.start)


def _addresses(file: Elf, blank: Sequence[Emptied]) -> Iterator[tuple[int, int]]:
    for each in blank:
        if (address := elf_references.loaded_at(file, each.start)) is not None:
            yield address, address + each.end - each.start


# Its tables, as the layout wants them.


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


def read_tables(elf: Elf) -> Tables:
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


def table_patches(
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
    return round_up(_content_end(elf, layout), _WORD.size)


def new_size(elf: Elf, tables: Tables, layout: Layout) -> int:
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
    whole = layout.parts(number) if number in layout.packed else uncut_parts(start, start + size, cuts)
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
        if tuple(uncut_parts(offset, offset + stored, layout.cuts)) != ((offset, offset + stored),):
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
    starts = elf_references.code_starts(elf) if len(parts) > 1 and row[1] & PF_X else None
    for start, end in parts:
        # Device code is not run by the host, nor are the tables that old linkers put behind it into the same segment.
        run = elf_references.holds_code(elf, elf.segments[number], (start, end), starts)
        flags = row[1] if len(parts) == 1 or (run and not _is_device_code(elf, layout, start, end)) else row[1] & ~PF_X
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
    parts = tuple(uncut_parts(offset, offset + stored, layout.cuts))
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
