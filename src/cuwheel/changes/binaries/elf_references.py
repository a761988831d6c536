"""What in an ELF file leads into its device code, and what the dynamic loader goes by: what changes when code moves."""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuwheel_core.device_code import dynamic
from cuwheel_core.device_code.dynamic import SYMBOL
from cuwheel_core.device_code.elf import (
    PT_DYNAMIC,
    PT_INTERP,
    PT_LOAD,
    PT_NOTE,
    SHT_DYNAMIC,
    SHT_DYNSYM,
    SHT_HASH,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
)
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, WRAPPER_SECTIONS
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel_core.device_code.elf import Elf, Header, Segment
    from cuwheel_core.support.buffer import Buffer


# Everything in an ELF file that holds an address inside its device code: what must change when that moves.

SHT_RELR = 19
_RELATIVE = {"x86_64": 8, "aarch64": 1027}
_RELA_ROW = struct.Struct("<QQq")
_WORD = struct.Struct("<Q")
_WRAPPER_SIZE, _POINTER_AT = 24, 8
_BITS = 63  # of a RELR bitmap
_ROWS_AT_ONCE = 1 << 12
_ALLOC, _EXEC, _TLS = 0x2, 0x4, 0x400  # flags of sections
_LOCAL = 0
TYPE_EXECUTABLE = 2
# What is read of one table at most; the largest seen has 30 MB.
_TABLE_LIMIT = 1 << 30


class Reference(NamedTuple):
    """A pointer that will hold `target` once the file is loaded.

    `slot`: where the pointer is. `addend`: where its relocation keeps the address; None where it stands in the slot.
    """

    slot: int
    addend: int | None
    target: int


class SymbolAt(NamedTuple):
    """A symbol, `at` its place in the file, whose value lies in one of the ranges."""

    at: int
    value: int
    size: int
    section: int
    exported: bool


def pointers_into(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[Reference]:
    """Those into `ranges` (of addresses), from relocations, and in place where the file has none."""
    if not ranges:
        return
    for table in elf.headers:
        if table.flags & _ALLOC and table.type == SHT_RELA:
            yield from _rela(elf, table, ranges)
        elif table.flags & _ALLOC and table.type == SHT_RELR:
            yield from _relr(elf, table, ranges)
    if elf.type == TYPE_EXECUTABLE:  # loaded where it was linked for: nothing is relocated
        yield from _in_place(elf, ranges)


def _rela(elf: Elf, table: Header, ranges: Sequence[tuple[int, int]]) -> Iterator[Reference]:
    low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
    relative = _RELATIVE[elf.machine_name]
    for base, data in _pieces(elf, table, _RELA_ROW.size):
        addends = memoryview(data).cast("Q")[2::3].tolist()
        if max(addends) < low or min(addends) >= high:  # most pieces: decided at native speed
            continue
        for index, addend in enumerate(addends):
            if low <= addend < high and _inside(addend, ranges):
                slot, info, _ = _RELA_ROW.unpack_from(data, index * _RELA_ROW.size)
                place = elf.addresses.offset_of(slot)
                if info == relative and place is not None:
                    yield Reference(place, base + index * _RELA_ROW.size + 16, addend)


def _relr(elf: Elf, table: Header, ranges: Sequence[tuple[int, int]]) -> Iterator[Reference]:
    slots = (each for _, data in _pieces(elf, table, _WORD.size) for each in memoryview(data).cast("Q").tolist())
    for address in relr_slots(slots):
        place = elf.addresses.offset_of(address)
        if place is None or place + _WORD.size > elf.buffer.size:
            raise MalformedError(elf.buffer.name, f"a relocation at {address:#x}, where nothing is loaded")
        (value,) = _WORD.unpack(elf.buffer.read(place, _WORD.size))
        if _inside(value, ranges):
            yield Reference(place, None, value)


def relr_slots(words: Iterator[int]) -> Iterator[int]:
    """An even word is an address; an odd one says which of the 63 words behind the last are relocated too."""
    following = 0
    for word in words:
        if not word & 1:
            yield word
            following = word + _WORD.size
            continue
        bits = word >> 1
        at = following
        while bits:
            if bits & 1:
                yield at
            bits >>= 1
            at += _WORD.size
        following += _BITS * _WORD.size


def addresses_written(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The addresses in `ranges` (which do not overlap) that the loader writes to."""
    ordered = sorted(ranges)
    starts = [start for start, _ in ordered]
    for table in elf.headers if ordered else ():
        if not table.flags & _ALLOC or table.type not in (SHT_RELA, SHT_RELR):
            continue
        for address in _slots(elf, table):
            index = bisect.bisect_right(starts, address + _WORD.size - 1) - 1
            if index >= 0 and address < ordered[index][1]:
                yield address


def _slots(elf: Elf, table: Header) -> Iterator[int]:
    if table.type == SHT_RELR:
        yield from relr_slots(
            each for _, data in _pieces(elf, table, _WORD.size) for each in memoryview(data).cast("Q").tolist()
        )
        return
    for _, data in _pieces(elf, table, _RELA_ROW.size):
        yield from memoryview(data).cast("Q")[::3].tolist()


def _in_place(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[Reference]:
    for section in elf.headers:
        if section.name in WRAPPER_SECTIONS:
            data = elf.data(section, _TABLE_LIMIT)
            for at in range(_POINTER_AT, len(data) - _WORD.size + 1, _WRAPPER_SIZE):
                (value,) = _WORD.unpack_from(data, at)
                if _inside(value, ranges):
                    yield Reference(section.offset + at, None, value)


def words_like(elf: Elf, addresses: Iterable[int]) -> Iterator[int]:
    """Where data of a program that is not relocated holds a word that is one of `addresses`, wrappers aside."""
    wanted = set(addresses)
    for section in elf.headers:
        if section.type == SHT_NOBITS or not section.flags & _ALLOC or section.flags & _EXEC:
            continue
        if section.name in WRAPPER_SECTIONS or section.name in FATBIN_SECTIONS or section.offset % _WORD.size:
            continue
        for base, data in _pieces(elf, section, _WORD.size):
            words = memoryview(data).cast("Q").tolist()
            if not wanted.isdisjoint(words):
                yield from (base + index * _WORD.size for index, word in enumerate(words) if word in wanted)


def symbols_in(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[SymbolAt]:
    if not ranges:
        return
    low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
    for table in elf.headers:
        if table.type not in (SHT_SYMTAB, SHT_DYNSYM):
            continue
        for base, data in _pieces(elf, table, SYMBOL.size):
            values = memoryview(data).cast("Q")[1::3].tolist()
            if max(values) < low or min(values) >= high:
                continue
            for index, value in enumerate(values):
                if low <= value < high and _inside(value, ranges):
                    _, info, _, section, _, size = SYMBOL.unpack_from(data, index * SYMBOL.size)
                    if section:
                        exported = table.type == SHT_DYNSYM and info >> 4 != _LOCAL
                        yield SymbolAt(base + index * SYMBOL.size, value, size, section, exported)


def _pieces(elf: Elf, table: Header, width: int) -> Iterator[tuple[int, bytes]]:
    if table.type == SHT_NOBITS or table.size > min(_TABLE_LIMIT, elf.buffer.size):
        raise MalformedError(elf.buffer.name, f"section {table.name} claims {table.size:,} bytes")
    usable = table.size // width * width
    for offset in range(0, usable, width * _ROWS_AT_ONCE):
        size = min(width * _ROWS_AT_ONCE, usable - offset)
        yield table.offset + offset, elf.buffer.read(table.offset + offset, size)


def _inside(address: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= address < end for start, end in ranges)


# What the dynamic loader goes by: program headers and the dynamic section, and whether section headers agree.
# Loaders never look at section headers, but rewriting uses them, so everything that depends on one is checked here
# against what is loaded.

_PT_PHDR, _PT_TLS, _PT_GNU_EH_FRAME = 6, 7, 0x6474E550
_SORTED_FRAMES = b"\x01\x1b\x03\x3b"  # of .eh_frame_hdr: pairs of addresses relative to it, as all linkers write them
_FRAMES_AT = 12
_ENTRY_AT = 24  # of the file's header
_FUNCTIONS = (2, 10)  # types of symbols: a function, and one that chooses a function
_INIT, _FINI = 12, 13
_AT_ONCE = 1 << 20
_HASH, _STRTAB, _SYMTAB, _GNU_HASH, _VERSYM = 4, 5, 6, 0x6FFFFEF5, 0x6FFFFFF0
_RELA, _RELASZ, _VERDEF, _VERNEED = 7, 8, 0x6FFFFFFC, 0x6FFFFFFE
MOVABLE_TAGS = frozenset({_HASH, _STRTAB, _SYMTAB, _GNU_HASH, _VERSYM, _RELA, _VERDEF, _VERNEED})
SHT_GNU_HASH, SHT_VERDEF, SHT_VERNEED, SHT_VERSYM = 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_TAG_OF = {
    SHT_HASH: _HASH,
    SHT_STRTAB: _STRTAB,
    SHT_DYNSYM: _SYMTAB,
    SHT_GNU_HASH: _GNU_HASH,
    SHT_VERSYM: _VERSYM,
    SHT_VERDEF: _VERDEF,
    SHT_VERNEED: _VERNEED,
    SHT_RELA: _RELA,
}
# Entries of the dynamic section that hold addresses: PLTGOT, RELA, INIT, FINI, JMPREL, INIT_ARRAY, FINI_ARRAY,
# PREINIT_ARRAY, RELR, VERDEF, VERNEED, and those that may move.
_ADDRESSES = MOVABLE_TAGS | {3, 12, 13, 23, 25, 26, 32, 36}
# Tables of relocations: where, how long, and the type of their section.
_RELOCATIONS = ((_RELA, _RELASZ, SHT_RELA), (23, 2, SHT_RELA), (36, 35, SHT_RELR))
_NOTE = struct.Struct("<III")
_LINKERS = b"GNU\0"
_PATCHELF_FILLS = b"XZ\0"  # by version


def headers_must_agree(elf: Elf, changing: Sequence[Header]) -> None:
    """Raises MalformedError where what is loaded is not what the section headers say of the parts that matter."""
    name = elf.buffer.name
    loads = sorted((each for each in elf.segments if each.type == PT_LOAD), key=lambda each: each.address)
    if any(two.address < one.address + one.memory_size for one, two in itertools.pairwise(loads)):
        raise MalformedError(name, "its segments overlap in memory")
    tags = list(dynamic.tags(elf))
    for header in changing:
        end = header.offset + header.size
        for each in elf.segments:
            if each.type == PT_LOAD and each.offset <= header.offset < _end(each):
                if header.address - header.offset != each.address - each.offset:
                    raise MalformedError(name, f"{header.name} is not loaded where its section header says")
            elif each.type and each.type != PT_LOAD and each.offset < end and header.offset < _end(each):
                raise MalformedError(name, f"a program header of type {each.type:#x} covers device code")
        for tag, value in tags:
            if tag in _ADDRESSES and header.address <= value < header.address + header.size:
                raise MalformedError(name, f"its dynamic section points into its device code, at {value:#x}")
    _relocations_agree(elf, dict(tags))


def must_have_all_segments(elf: Elf, start: int, end: int) -> None:
    """Raises MalformedError where the count of program headers is not true: what is rewritten by it does not load.

    `start`, `end`: of their table, by that count.
    """
    name, count = elf.buffer.name, len(elf.segments)
    if any(each.type == _PT_PHDR and each.file_size != end - start for each in elf.segments):
        raise MalformedError(name, f"it claims {count} program headers, and its table of them has another size")
    present = [each for each in elf.headers if each.type not in (0, SHT_NOBITS) and each.size]
    if any(each.offset < end and start < each.offset + each.size for each in present):
        raise MalformedError(name, f"it claims {count} program headers, which reach into a section")
    loads = [each for each in elf.segments if each.type == PT_LOAD]
    if any(each.memory_size < each.file_size or _end(each) > elf.buffer.size for each in loads):
        raise MalformedError(name, "a segment is larger than what there is of it")
    for section in (each for each in present if each.flags & _ALLOC):
        if not any(each.offset <= section.offset and section.offset + section.size <= _end(each) for each in loads):
            raise MalformedError(name, f"it claims {count} program headers, and none of them loads {section.name}")
    kinds = {each.type for each in elf.segments}
    if any(each.type == SHT_DYNAMIC for each in present) and PT_DYNAMIC not in kinds:
        raise MalformedError(name, f"it claims {count} program headers, and none of them is for its dynamic section")
    if any(each.flags & _TLS for each in elf.headers) and _PT_TLS not in kinds:
        raise MalformedError(name, f"it claims {count} program headers, and none of them is for its threads' data")


def _relocations_agree(elf: Elf, tags: dict[int, int]) -> None:
    """Every relocation that the loader applies must be in a table that is searched for pointers."""
    for place, size, kind in _RELOCATIONS:
        start, end = tags.get(place, 0), tags.get(place, 0) + tags.get(size, 0)
        for each in sorted(elf.headers, key=lambda each: each.address):
            if each.flags & _ALLOC and each.type == kind and each.address <= start < each.address + each.size:
                start = each.address + each.size
        if start < end:
            raise MalformedError(elf.buffer.name, f"no section header describes the relocations at {start:#x}")
    if _SYMTAB in tags and not any(
        each.type == SHT_DYNSYM and each.address == tags[_SYMTAB] == loaded_at(elf, each.offset) for each in elf.headers
    ):
        raise MalformedError(elf.buffer.name, "its dynamic symbols are not where its section headers say")


def loader_finds(elf: Elf, section: Header) -> bool:
    """Whether the loader finds a section through the dynamic section or a program header, and code has no other way.

    Notes of the linker's own are such; what another put into a note, code beside it may read.
    """
    if section.address != loaded_at(elf, section.offset):
        return False
    if (tag := _TAG_OF.get(section.type)) is not None:
        tags = dict(dynamic.tags(elf))
        whole = tag != _RELA or tags.get(_RELASZ) == section.size  # some linkers count those of the calls with them
        return whole and tags.get(tag) == section.address
    kind = PT_NOTE if section.type == SHT_NOTE else PT_INTERP
    end = section.offset + section.size
    covered = any(each.type == kind and each.offset <= section.offset and end <= _end(each) for each in elf.segments)
    return covered and (kind == PT_INTERP or _by_linker(elf.buffer, section.offset, end))


def _by_linker(buffer: Buffer, at: int, end: int) -> bool:
    while at + _NOTE.size <= end:
        owner, size, _ = _NOTE.unpack(buffer.read(at, _NOTE.size))
        if owner != len(_LINKERS) or buffer.read(at + _NOTE.size, owner) != _LINKERS:
            return False
        at += _NOTE.size + owner + -(-size // 4) * 4
        if at < end and end - at < _NOTE.size + len(_LINKERS):
            return is_blank(buffer, at, end)
    return at >= end


def is_pointed_into(elf: Elf, start: int, end: int) -> bool:
    """Whether a relocation, or an entry of the dynamic section that is not known to move, names a part of the file."""
    low = loaded_at(elf, start)
    if low is None:
        return True
    ranges = [(low, low + end - start)]
    others = (value for tag, value in dynamic.tags(elf) if tag in _ADDRESSES - MOVABLE_TAGS)
    return any(low <= value < low + end - start for value in others) or any(pointers_into(elf, ranges))


def is_free(elf: Elf, start: int, end: int) -> bool:
    """Whether nothing needs a part of the file that no section is at.

    It is blank, or has what patchelf fills the places with from which it moved sections, and nothing points there.
    """
    if is_blank(elf.buffer, start, end):
        return True
    return is_blank(elf.buffer, start, end, _PATCHELF_FILLS) and not is_pointed_into(elf, start, end)


def is_blank(buffer: Buffer, start: int, end: int, filling: bytes = b"\0") -> bool:
    """Whether nothing but zeros, or `filling`, stands there: what no table tells of may be needed all the same."""
    end = min(end, buffer.size)
    pieces = (buffer.read(at, min(_AT_ONCE, end - at)) for at in range(start, end, _AT_ONCE))
    return not any(piece.strip(filling) for piece in pieces)


def code_starts(elf: Elf) -> list[int] | None:
    """Where code begins, in order: by the table for unwinding, by the names of functions, and where loaders call it.

    None where there is no such table: then nobody can tell.
    """
    frames = next((each for each in elf.segments if each.type == _PT_GNU_EH_FRAME), None)
    data = elf.buffer.read(frames.offset, frames.file_size) if frames and _end(frames) <= elf.buffer.size else b""
    if frames is None or not data.startswith(_SORTED_FRAMES) or len(data) < _FRAMES_AT:
        return None
    (count,) = struct.unpack_from("<I", data, len(_SORTED_FRAMES) + 4)
    if len(data) < _FRAMES_AT + 8 * count:
        return None
    rows = memoryview(data)[_FRAMES_AT : _FRAMES_AT + 8 * count].cast("i")[::2].tolist()
    starts = {frames.address + each for each in rows}
    starts |= {value for tag, value in dynamic.tags(elf) if tag in (_INIT, _FINI)}
    starts |= set(_WORD.unpack(elf.buffer.read(_ENTRY_AT, _WORD.size)))
    for table in elf.headers:
        if table.type in (SHT_SYMTAB, SHT_DYNSYM):
            for _, rows_of_symbols in _pieces(elf, table, SYMBOL.size):
                kinds = rows_of_symbols[4 :: SYMBOL.size]
                values = memoryview(rows_of_symbols).cast("Q")[1::3].tolist()
                starts.update(value for kind, value in zip(kinds, values, strict=True) if kind & 15 in _FUNCTIONS)
    return sorted(starts - {0})  # of functions of other libraries, and of a library's entry


def holds_code(elf: Elf, segment: Segment, part: tuple[int, int], starts: Sequence[int] | None) -> bool:
    """Whether a part of a segment may be run. `starts`: as by `code_starts`.

    Loaders go by segments, and what a section's flags say proves nothing by itself: nothing else may speak of code
    there either.
    """
    start, end = part
    flagged = (each for each in elf.headers if each.type not in (0, SHT_NOBITS) and each.flags & _EXEC)
    if starts is None or any(each.offset < end and start < each.offset + each.size for each in flagged):
        return True
    step = segment.address - segment.offset
    return bisect.bisect_left(starts, start + step) < bisect.bisect_left(starts, end + step)


def loaded_at(elf: Elf, offset: int) -> int | None:
    for each in elf.segments:
        if each.type == PT_LOAD and each.offset <= offset < _end(each):
            return offset - each.offset + each.address
    return None


def _end(segment: Segment) -> int:
    return segment.offset + segment.file_size
