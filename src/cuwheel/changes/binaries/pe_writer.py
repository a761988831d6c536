"""The tables of a PE file as a layout wants them: patches, each at its place in the new file. Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import pe_load_config, pe_rules
from cuwheel.changes.binaries.geometry import up
from cuwheel.device_code.pe import CERTIFICATES, COFF, DEBUG, DIRECTORIES_AT, SECTION
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.changes.binaries.elf_writer import Patch
    from cuwheel.changes.binaries.pe_layout import Layout, Part
    from cuwheel.changes.binaries.pe_references import Pointer
    from cuwheel.changes.binaries.pe_rules import Fields
    from cuwheel.device_code.pe import Pe

_WORD = struct.Struct("<Q")
_DEBUG = struct.Struct("<IIHHIIII")
_MOST_DEBUG = 1 << 10
_SYMBOL = struct.Struct("<8sIhHBB")
_SYMBOLS_AT_ONCE = 1 << 12
_INITIALIZED = 0x40
_COUNT_AT, _SYMBOLS_AT = 6, 12  # in the COFF header


def patches(
    file: Pe, head: Fields, layout: Layout, moved: Mapping[int, int], pointers: Sequence[Pointer]
) -> Iterator[Patch]:
    """`moved`: from the old address of a container to its new one."""
    yield file.header_at + _COUNT_AT, struct.pack("<H", len(layout.parts))
    if file.symbols_at:
        yield file.header_at + _SYMBOLS_AT, struct.pack("<I", layout.shift.placed(file.symbols_at))
    yield file.header_at + COFF.size, _optional(file, head, layout)
    yield head.table_at, b"".join(SECTION.pack(*each) for each in _rows(file, layout))
    for each in pointers:
        if (new := moved.get(each.target, each.target)) != each.target:
            yield layout.placed(each.slot), _WORD.pack(file.image_base + new)
    yield from _debug(file, layout)
    numbers = _Numbers(file, layout)
    yield from _dynamic_relocations(file, layout, numbers)
    yield from _symbols(file, layout, moved, numbers)


def size(file: Pe, layout: Layout) -> int:
    """Of the new file."""
    last = max((layout.placed(part.start) + part.end - part.start for part in layout.parts), default=0)
    return max(last, layout.shift.placed(file.buffer.size))


def _optional(file: Pe, head: Fields, layout: Layout) -> bytes:
    new = bytearray(file.optional)
    before = sum(row.stored for row in file.rows if row.traits & _INITIALIZED)
    after = sum(part.end - part.start for part in layout.parts if file.rows[part.number].traits & _INITIALIZED)
    (data,) = struct.unpack_from("<I", new, pe_rules.INITIALIZED_SIZE_AT)
    struct.pack_into("<I", new, pe_rules.INITIALIZED_SIZE_AT, max(data + after - before, 0))
    last = layout.parts[-1]
    struct.pack_into(
        "<II", new, pe_rules.IMAGE_SIZE_AT, up(last.address + last.memory, head.section_alignment), layout.headers_size
    )
    if file.signed:
        struct.pack_into("<II", new, DIRECTORIES_AT + 8 * CERTIFICATES, 0, 0)
    return bytes(new)


def _rows(file: Pe, layout: Layout) -> Iterator[tuple[bytes, int, int, int, int, int, int, int, int, int]]:
    for part in layout.parts:
        row = file.rows[part.number]
        stored = part.end - part.start
        place = layout.placed(part.start) if stored else 0
        yield (
            row.name,
            part.memory,
            part.address,
            stored,
            place,
            layout.shift.placed(row.relocations_at) if row.relocations_at else 0,
            layout.shift.placed(row.lines_at) if row.lines_at else 0,
            row.relocations,
            row.lines,
            row.traits,
        )


def _debug(file: Pe, layout: Layout) -> Iterator[Patch]:
    """Debug directories say where their data is in the file, too."""
    place, length = file.directory(DEBUG)
    at = file.addresses.offset_of(place) if length else None
    if at is None:
        return
    if length > _MOST_DEBUG * _DEBUG.size:
        raise MalformedError(file.buffer.name, f"its debug directory claims {length:,} bytes")
    for index in range(length // _DEBUG.size):
        here = at + index * _DEBUG.size
        *others, offset = _DEBUG.unpack(file.buffer.read(here, _DEBUG.size))
        if offset:
            yield layout.placed(here), _DEBUG.pack(*others, layout.shift.placed(offset))


class _Numbers:
    """Sections have other numbers where one became two. Numbers begin with 1."""

    def __init__(self, file: Pe, layout: Layout) -> None:
        self._file = file
        self._parts: dict[int, list[tuple[int, Part]]] = {}
        for number, part in enumerate(layout.parts, start=1):
            self._parts.setdefault(part.number, []).append((number, part))

    def of(self, number: int, address: int) -> tuple[int, int]:
        """Of the section that has now what is at `address` of the old section `number`, and its offset in it."""
        parts = self._parts[number - 1]
        inside = [each for each in parts if each[1].address <= address]
        new, part = inside[-1] if inside else parts[0]
        return new, max(address - part.address, 0)

    def known(self, number: int) -> bool:
        return 0 < number <= len(self._file.rows)


def _dynamic_relocations(file: Pe, layout: Layout, numbers: _Numbers) -> Iterator[Patch]:
    found = pe_load_config.read(file)
    if numbers.known(found.table_section):
        address = file.rows[found.table_section - 1].address + found.table_offset
        section, offset = numbers.of(found.table_section, address)
        yield layout.placed(found.table_at), pe_load_config.TABLE.pack(offset, section)


def _symbols(file: Pe, layout: Layout, moved: Mapping[int, int], numbers: _Numbers) -> Iterator[Patch]:
    """Local names of containers follow them."""
    skip = 0
    for index in range(0, file.symbols if file.symbols_at else 0, _SYMBOLS_AT_ONCE):
        at = file.symbols_at + index * _SYMBOL.size
        count = min(_SYMBOLS_AT_ONCE, file.symbols - index)
        for row, fields in enumerate(_SYMBOL.iter_unpack(file.buffer.read(at, count * _SYMBOL.size))):
            if skip:  # what follows a symbol to tell more of it
                skip -= 1
                continue
            name, value, number, *rest, skip = fields
            if numbers.known(number):
                address = file.rows[number - 1].address + value
                new_number, new_value = numbers.of(number, moved.get(address, address))
                if (new_number, new_value) != (number, value):
                    new = _SYMBOL.pack(name, new_value, new_number, *rest, skip)
                    yield layout.placed(at + row * _SYMBOL.size), new
