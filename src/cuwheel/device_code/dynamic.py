"""What an ELF file asks of the dynamic loader: libraries, search paths, symbol versions, symbols."""

from __future__ import annotations

import itertools
import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import limits
from cuwheel.device_code.elf import PT_DYNAMIC, SHT_DYNAMIC, SHT_DYNSYM, SHT_SYMTAB
from cuwheel.errors import MalformedError
from cuwheel.facts import versions
from cuwheel.support.buffer import find, string_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.elf import Elf, Header

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
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)*)", re.ASCII)


class Dynamic(NamedTuple):
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


class Symbol(NamedTuple):
    name: str
    defined: bool
    bind: int
    type: int
    value: int
    size: int


def read(elf: Elf) -> Dynamic:
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
    """As the loader finds them, by the segment; by the section where there is no segment."""
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
