"""What the dynamic loader makes of an ELF file: libraries, search paths, symbol versions, symbols, pointers."""

from __future__ import annotations

import bisect
import itertools
import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel_core.device_code import limits
from cuwheel_core.device_code.elf import PT_DYNAMIC, SHT_DYNAMIC, SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, TYPE_RELOCATABLE
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import versions
from cuwheel_core.support.buffer import find, string_at
from cuwheel_core.support.patterns import lazy_pattern

if TYPE_CHECKING:
    from cuwheel_core.device_code.elf import Elf, Header


_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_PAIR = struct.Struct("<QQ")
_NEED = struct.Struct("<HHIII")
_NEED_AUX = struct.Struct("<IHHII")
SYMBOL = struct.Struct("<IBBHQQ")
_MOST_TAGS = 10_000
_MOST_VERSIONS = 10_000
_SYMBOLS_AT_ONCE = 4096
_MOST_PLACES = 8  # a name may end others too; a table made of nothing else is hostile
_NAMES_PER_BYTE = 8  # names share their ends, but not without limit
_VERSION = lazy_pattern(r"(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)*)", re.ASCII)


class Dynamic(Struct, frozen=True):
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    # Library → the symbol versions wanted of it, such as GLIBC_2.28.
    versions: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def ceiling(self, family: str) -> str | None:
        """The highest version of `family` (GLIBC, GLIBCXX, CXXABI) that any symbol wants."""
        matches = (_VERSION.fullmatch(each) for _, wanted in self.versions for each in wanted)
        found = [match[2] for match in matches if match and match[1] == family]
        return max(found, key=versions.key, default=None)


class Symbol(Struct, frozen=True):
    name: str
    defined: bool
    bind: int
    type: int
    value: int
    size: int


def read_dynamic(elf: Elf) -> Dynamic:
    """Empty where there is no dynamic section. How much is read of names is bounded."""
    found = list(tags(elf))
    single = dict(reversed(found))
    base = elf.addresses.offset_of(single.get(_STRTAB, 0)) if _STRTAB in single else None
    if base is None:
        return Dynamic()
    end = base + single.get(_STRSZ, 0)

    budget = _NAMES_PER_BYTE * max(end - base, 0)

    def text(offset: int) -> str:
        nonlocal budget
        found = string_at(elf.buffer, base + offset, end)
        budget -= len(found)
        if budget < 0:
            raise MalformedError(elf.buffer.name, "the names in its dynamic section are many times its name table")
        return found

    def paths(tag: int) -> tuple[str, ...]:
        return tuple(part for key, value in found if key == tag for part in text(value).split(":") if part)

    return Dynamic(
        soname=text(single[_SONAME]) if _SONAME in single else None,
        needed=tuple(text(value) for key, value in found if key == _NEEDED),
        rpath=paths(_RPATH),
        runpath=paths(_RUNPATH),
        versions=tuple(_needs(elf, single, base, end)),
    )


def tags(elf: Elf) -> Iterator[tuple[int, int]]:
    """Yields the tags that the loader finds, by the segment; by the section where there is no segment."""
    place = next(((each.offset, each.file_size) for each in elf.segments if each.type == PT_DYNAMIC), None)
    place = place or next(((each.offset, each.size) for each in elf.headers if each.type == SHT_DYNAMIC), None)
    if place is None:
        return
    offset, size = place
    count = min(size // _PAIR.size, _MOST_TAGS)
    for tag, value in _PAIR.iter_unpack(elf.buffer.read(offset, count * _PAIR.size)):
        if tag == 0:
            return
        yield tag, value
    if count == _MOST_TAGS:
        limits.met(f"{_MOST_TAGS:,} entries of the dynamic section", "the rest of the needed libraries are not listed")


def _needs(elf: Elf, tags: dict[int, int], base: int, end: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    place = elf.addresses.offset_of(tags[_VERNEED]) if _VERNEED in tags else None
    if place is None:
        return
    remaining = _MOST_VERSIONS  # over all lists together: a chain that returns to itself ends here
    for _ in range(min(tags.get(_VERNEEDNUM, 0), _MOST_VERSIONS)):
        _, count, file, aux, step = _NEED.unpack(elf.buffer.read(place, _NEED.size))
        names = []
        at = place + aux
        for _ in range(min(count, remaining)):
            remaining -= 1
            _, _, _, name, forward = _NEED_AUX.unpack(elf.buffer.read(at, _NEED_AUX.size))
            names.append(string_at(elf.buffer, base + name, end))
            if not forward:
                break
            at += forward
        yield string_at(elf.buffer, base + file, end), tuple(names)
        if not remaining:
            limits.met(f"{_MOST_VERSIONS:,} symbol versions", "the rest are not counted")
        if not step or not remaining:
            return
        place += step


def symbol_table(elf: Elf) -> tuple[Header, Header] | None:
    """The dynamic symbols and their names; for relocatable files the static ones."""
    for kind in (SHT_DYNSYM, SHT_SYMTAB):
        for each in elf.headers:
            if each.type == kind and each.link < len(elf.headers):
                return each, elf.headers[each.link]
    return None


def symbols(elf: Elf) -> Iterator[Symbol]:
    """Every symbol the loader sees, a table of any length being read in pieces."""
    if not (tables := symbol_table(elf)):
        return
    table, names = tables
    step = SYMBOL.size * _SYMBOLS_AT_ONCE
    budget = _NAMES_PER_BYTE * names.size
    for offset in range(0, table.size - table.size % SYMBOL.size, step):
        piece = elf.buffer.read(table.offset + offset, min(step, table.size - offset) // SYMBOL.size * SYMBOL.size)
        for name, info, _, section, value, size in SYMBOL.iter_unpack(piece):
            if name:
                text = string_at(elf.buffer, names.offset + name, names.offset + names.size)
                budget -= len(text) + 1
                if budget < 0:
                    raise MalformedError(elf.buffer.name, "its symbol names are many times its name table")
                yield Symbol(text, section != 0, info >> 4, info & 15, value, size)


def lookup(elf: Elf, name: str) -> Symbol | None:
    """One symbol by name, without reading the others: found by its name's place in the string table."""
    if not (tables := symbol_table(elf)):
        return None
    table, names = tables
    end = min(names.offset + names.size, elf.buffer.size)
    places = find(elf.buffer, name.encode() + b"\0", names.offset, end)
    for place in itertools.islice(places, _MOST_PLACES):
        wanted = struct.pack("<I", place - names.offset)
        for at in find(elf.buffer, wanted, table.offset, min(table.offset + table.size, elf.buffer.size)):
            if (at - table.offset) % SYMBOL.size == 0:
                raw = elf.buffer.read(at, SYMBOL.size)
                _, info, _, section, value, size = SYMBOL.unpack(raw)
                return Symbol(name, section != 0, info >> 4, info & 15, value, size)
    return None


def mentions(elf: Elf, text: str) -> bool:
    """Whether any symbol's name contains `text`."""
    if not (tables := symbol_table(elf)):
        return False
    names = tables[1]
    end = min(names.offset + names.size, elf.buffer.size)
    return next(find(elf.buffer, text.encode(), names.offset, end), None) is not None


# Where the pointers of an ELF file will point once it is loaded.

_RELA = struct.Struct("<QQq")
_RELOCATIONS_AT_ONCE = 1 << 12
_PASSES = 4
_BLOCK_BITS = 16
_MOST_BLOCKS = 4


class ElfPointers:
    """Reads only relocations that touch the given sections; a pointer without one stands in place (RELR)."""

    def __init__(self, elf: Elf, sections: tuple[str, ...]) -> None:
        self._elf = elf
        self._targets: dict[int, int | None] = {}
        budget = _PASSES * elf.buffer.size
        relocations = [each for each in elf.headers if each.type == SHT_RELA]
        for header in elf.headers:
            if header.name in sections:
                for table in relocations:
                    if elf.type == TYPE_RELOCATABLE and table.info != header.number:
                        continue  # of another section
                    budget -= table.size
                    if budget < 0:  # sections and tables over the same bytes, again and again
                        limits.met(
                            f"relocation tables of {_PASSES} times the file", "the rest of the pointers are not known"
                        )
                        return
                    self._targets.update(_relocated(elf, header, table))

    def target(self, slot: int, value: int) -> int | None:
        if slot in self._targets:
            return self._targets[slot]
        return self._elf.addresses.offset_of(value) if value else None


class ArchivePointers:
    """The pointers of all members of a static archive, found by where in it they stand."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._of: list[ElfPointers] = []

    def add(self, offset: int, pointers: ElfPointers) -> None:
        self._starts.append(offset)
        self._of.append(pointers)

    def target(self, slot: int, value: int) -> int | None:
        index = bisect.bisect_right(self._starts, slot) - 1
        if index < 0:
            return None
        found = self._of[index].target(slot - self._starts[index], value)
        return None if found is None else found + self._starts[index]


def _relocated(elf: Elf, section: Header, table: Header) -> Iterator[tuple[int, int | None]]:
    """File offset of a pointer in `section` → file offset of what it points at."""
    start = 0 if elf.type == TYPE_RELOCATABLE else section.address
    for place, info, addend in _touching(elf, table, start, start + section.size):
        yield section.offset + place - start, _relocation_target(elf, table, info >> 32, addend)


def _touching(elf: Elf, table: Header, low: int, high: int) -> Iterator[tuple[int, int, int]]:
    step = _RELA.size * _RELOCATIONS_AT_ONCE
    usable = min(table.size, max(elf.buffer.size - table.offset, 0)) // _RELA.size * _RELA.size
    last = min(high, 1 << 64) - 1  # a damaged section may reach beyond every address
    blocks = range(low >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1)
    # What the places sought have in common: the upper bytes of their address.
    common = [block.to_bytes(8 - _BLOCK_BITS // 8, "little") for block in blocks[:_MOST_BLOCKS]]
    for offset in range(0, usable, step):
        data = elf.buffer.read(table.offset + offset, min(step, usable - offset))
        if len(blocks) <= _MOST_BLOCKS and not any(upper in data for upper in common):
            continue  # most pieces: decided at native speed
        for index, place in enumerate(memoryview(data).cast("Q")[::3].tolist()):
            if low <= place < high:
                yield _RELA.unpack_from(data, index * _RELA.size)


def _relocation_target(elf: Elf, table: Header, symbol: int, addend: int) -> int | None:
    if not symbol:
        return elf.addresses.offset_of(addend)
    if table.link >= len(elf.headers):
        return None
    symbols = elf.headers[table.link]
    if (symbol + 1) * SYMBOL.size > symbols.size:
        return None
    raw = elf.buffer.read(symbols.offset + symbol * SYMBOL.size, SYMBOL.size)
    section: int
    value: int
    _, _, _, section, value, _ = SYMBOL.unpack(raw)
    if elf.type != TYPE_RELOCATABLE:
        return elf.addresses.offset_of(value + addend)
    if not 0 < section < len(elf.headers):
        return None
    return elf.headers[section].offset + value + addend
