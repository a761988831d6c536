"""PE files (.dll, .pyd, .exe): sections, imports, and pointers, which stand in place.

Read with `struct`, not pefile: that needs the whole file in memory and 70 ms to import.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from msgspec import Struct

from cuwheel_core.device_code import limits
from cuwheel_core.device_code.libraries import FileType
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, AddressMap, Range, Role, Section
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import Buffer, string_at
from cuwheel_core.wheel.tags import PROCESSORS

MAGIC = b"MZ"
MACHINES = {row.pe: row.name for row in PROCESSORS.values() if row.pe}
COFF = struct.Struct("<4sHHIIIHH")
SECTION = struct.Struct("<8sIIIIIIHHI")
_PE32, _PE32_PLUS = 0x10B, 0x20B
_IMAGE_BASE_AT, DIRECTORIES_AT = 24, 112
_IMPORTS, _DELAYED_IMPORTS = 1, 13
EXPORTS, RESOURCES, CERTIFICATES, RELOCATIONS, DEBUG, LOAD_CONFIG = 0, 2, 4, 5, 6, 10  # numbers of directories
_IS_DLL, _IS_EXECUTABLE = 0x2000, 0x0002
_HAS_CODE, _DISCARDABLE, EXECUTABLE = 0x20, 0x02000000, 0x20000000  # traits of sections
_MOST_IMPORTS = 4096
_MOST_FUNCTIONS = 1 << 14
_BY_NUMBER = 1 << 63
_NAME_LIMIT = 512


class Row(Struct, frozen=True):
    """A row of the section table. `memory` and `stored`: its sizes there; `offset`: in the file."""

    name: bytes
    memory: int
    address: int
    stored: int
    offset: int
    relocations_at: int
    lines_at: int
    relocations: int
    lines: int
    traits: int

    @property
    def end(self) -> int:
        """Where its addresses end, before they are rounded up."""
        return self.address + (self.memory or self.stored)


class Pe(Struct, frozen=True):
    """`header_at`: where the PE header begins. `optional`: the optional header, of which much is for loaders only."""

    buffer: Buffer
    header_at: int
    optional: bytes
    symbols_at: int  # the old table of symbols, which GNU's linker still writes
    symbols: int
    rows: tuple[Row, ...]
    machine: str
    file_type: FileType
    image_base: int
    sections: tuple[Section, ...]
    addresses: AddressMap  # of addresses relative to the image base
    needed: tuple[str, ...]

    def target(self, _slot: int, value: int) -> int | None:
        return self.addresses.offset_of(value - self.image_base) if value else None

    def directory(self, number: int) -> tuple[int, int]:
        """Where one of the tables that loaders go by is, and its size. (0, 0): there is none."""
        at = DIRECTORIES_AT + number * 8
        (count,) = struct.unpack_from("<I", self.optional, DIRECTORIES_AT - 4)
        if number >= count or at + 8 > len(self.optional):
            return 0, 0
        place, size = struct.unpack_from("<II", self.optional, at)
        return (place, size) if place and size else (0, 0)

    @property
    def signed(self) -> bool:
        """Whether a certificate is attached (Authenticode): any change makes it worthless."""
        return bool(self.directory(CERTIFICATES)[1])


def is_pe(buffer: Buffer) -> bool:
    if buffer.size < 64 or buffer.read(0, 2) != MAGIC:  # noqa: PLR2004 - the DOS header
        return False
    at = _header_at(buffer)
    return at + COFF.size <= buffer.size and buffer.read(at, 4) == b"PE\0\0"


def is_foreign(head: bytes) -> bool:
    """32-bit: no CUDA of today makes such files, but installers' launchers are some."""
    if len(head) < 64 or head[:2] != MAGIC:  # noqa: PLR2004 - the DOS header
        return False
    (at,) = struct.unpack_from("<I", head, 0x3C)
    magic = head[at + COFF.size : at + COFF.size + 2]
    return head[at : at + 4] == b"PE\0\0" and magic == _PE32.to_bytes(2, "little")


def read_pe(buffer: Buffer) -> Pe:
    """Headers, sections and imports. Raises MalformedError, also for 32-bit files."""
    at = _header_at(buffer)
    signature, machine, count, _, symbols_at, symbols, optional_size, traits = COFF.unpack(buffer.read(at, COFF.size))
    if signature != b"PE\0\0":
        raise MalformedError(buffer.name, "not a PE file")
    optional = buffer.read(at + COFF.size, optional_size)
    if len(optional) < DIRECTORIES_AT or struct.unpack_from("<H", optional)[0] != _PE32_PLUS:
        raise MalformedError(buffer.name, "a 32-bit PE file, which current CUDA does not make")
    table = buffer.read(at + COFF.size + optional_size, count * SECTION.size)
    rows = tuple(Row(*each) for each in SECTION.iter_unpack(table))
    sections, addresses = _sections(buffer, rows)
    return Pe(
        buffer=buffer,
        header_at=at,
        optional=optional,
        symbols_at=symbols_at if symbols else 0,
        symbols=symbols,
        rows=rows,
        machine=MACHINES.get(machine, f"machine {machine:#x}"),
        file_type="shared" if traits & _IS_DLL else "executable" if traits & _IS_EXECUTABLE else "other",
        image_base=struct.unpack_from("<Q", optional, _IMAGE_BASE_AT)[0],
        sections=sections,
        addresses=addresses,
        needed=tuple(dict.fromkeys(name for name, _ in _imports(buffer, optional, addresses))),
    )


def _header_at(buffer: Buffer) -> int:
    (at,) = struct.unpack("<I", buffer.read(0x3C, 4))
    return int(at)


def _sections(buffer: Buffer, rows: tuple[Row, ...]) -> tuple[tuple[Section, ...], AddressMap]:
    sections, ranges = [], []
    for index, row in enumerate(rows):
        name = row.name.rstrip(b"\0").decode("utf-8", "replace")
        start = min(row.offset, buffer.size)
        size = min(row.stored, buffer.size - start)
        # The file's part is padded to the alignment; what memory does not hold is padding.
        used = min(size, row.memory) if row.memory else size
        sections.append(Section(index, name, _role(name, row.traits), row.address, start, used))
        ranges.append(Range(row.address, start, size))
    return tuple(sections), AddressMap(ranges)


def _role(name: str, traits: int) -> Role:
    if name in FATBIN_SECTIONS:
        return "device"
    if traits & _HAS_CODE:
        return "code"
    if name.startswith(".debug"):
        return "debug"
    if name in (".pdata", ".xdata"):
        return "unwind"
    return "other" if traits & _DISCARDABLE else "data"


def imported(file: Pe, library: str) -> Iterator[str]:
    """The functions that it takes by name from a library."""
    for name, table in _imports(file.buffer, file.optional, file.addresses):
        place = file.addresses.offset_of(table) if table and name.lower() == library.lower() else None
        for index in range(_MOST_FUNCTIONS if place is not None else 0):
            (entry,) = struct.unpack("<Q", file.buffer.read((place or 0) + 8 * index, 8))
            if not entry:
                break
            at = None if entry & _BY_NUMBER else file.addresses.offset_of(entry & 0x7FFFFFFF)
            if at is not None:
                yield string_at(file.buffer, at + 2, at + 2 + _NAME_LIMIT)  # behind a hint


def _imports(buffer: Buffer, optional: bytes, addresses: AddressMap) -> Iterator[tuple[str, int]]:
    """Each library that is imported, at once or late, with the address of the table of its functions' names."""
    for directory, width, name_at, table_at in ((_IMPORTS, 20, 12, 0), (_DELAYED_IMPORTS, 32, 4, 16)):
        entry = DIRECTORIES_AT + directory * 8
        if entry + 8 > len(optional):
            continue
        place = addresses.offset_of(struct.unpack_from("<I", optional, entry)[0])
        if place is None or not struct.unpack_from("<I", optional, entry)[0]:
            continue
        for index in range(_MOST_IMPORTS):
            raw = buffer.read(place + index * width, width)
            if not any(raw):
                break
            name = addresses.offset_of(struct.unpack_from("<I", raw, name_at)[0])
            if name is not None:
                found = string_at(buffer, name, name + _NAME_LIMIT)
                yield found, struct.unpack_from("<I", raw, table_at)[0]
        else:
            limits.met(f"{_MOST_IMPORTS:,} imported libraries", "the rest are not listed")
