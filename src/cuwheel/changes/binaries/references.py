"""Everything in an ELF file that holds an address inside its device code: what must change when that moves."""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code.dynamic import SYMBOL
from cuwheel.device_code.elf import SHT_DYNSYM, SHT_NOBITS, SHT_RELA, SHT_SYMTAB
from cuwheel.device_code.image import FATBIN_SECTIONS, WRAPPER_SECTIONS
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.device_code.elf import Elf, Header

SHT_RELR = 19
_RELATIVE = {"x86_64": 8, "aarch64": 1027}
_RELA = struct.Struct("<QQq")
_WORD = struct.Struct("<Q")
_WRAPPER_SIZE, _POINTER_AT = 24, 8
_BITS = 63  # of a RELR bitmap
_AT_ONCE = 1 << 12
_ALLOC, _EXEC = 0x2, 0x4
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


def pointers(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[Reference]:
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
    for base, data in _pieces(elf, table, _RELA.size):
        addends = memoryview(data).cast("Q")[2::3].tolist()
        if max(addends) < low or min(addends) >= high:  # most pieces: decided at native speed
            continue
        for index, addend in enumerate(addends):
            if low <= addend < high and _inside(addend, ranges):
                slot, info, _ = _RELA.unpack_from(data, index * _RELA.size)
                place = elf.addresses.offset_of(slot)
                if info == relative and place is not None:
                    yield Reference(place, base + index * _RELA.size + 16, addend)


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


def written(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
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
    for _, data in _pieces(elf, table, _RELA.size):
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


def symbols(elf: Elf, ranges: Sequence[tuple[int, int]]) -> Iterator[SymbolAt]:
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
    for offset in range(0, usable, width * _AT_ONCE):
        size = min(width * _AT_ONCE, usable - offset)
        yield table.offset + offset, elf.buffer.read(table.offset + offset, size)


def _inside(address: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= address < end for start, end in ranges)
