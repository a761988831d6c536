"""ELF, the little of it that is needed, read in place with `struct`.

Not with pyelftools: importing that takes 120 ms, a survey of a 456 MB library 20 ms, and here a count
or an offset that a hostile file makes up must end in MalformedError before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel_core.device_code.sections import FATBIN_SECTIONS, AddressMap, Range, Role, Section
from cuwheel_core.errors import MalformedError
from cuwheel_core.support import bounded
from cuwheel_core.support.buffer import Buffer, MemoryBuffer, SliceBuffer, string_at
from cuwheel_core.wheel.tags import PROCESSORS

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import FileType


MAGIC = b"\x7fELF"
HEADER_SIZE = 64
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")

MACHINES = {row.elf: row.name for row in PROCESSORS.values()} | {190: "cuda", 224: "amdgpu"}
MACHINE_CUDA = 190
_TYPES: dict[int, FileType] = {1: "relocatable", 2: "executable", 3: "shared"}
TYPE_RELOCATABLE = 1

SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC = 2, 3, 4, 5, 6
SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM, _SHT_SYMTAB_SHNDX = 7, 8, 9, 11, 18
_CUDA_WITHOUT_BYTES = (0x70000007, 0x70000009, 0x7000000A)  # uninitialised global, local and shared memory
_SYMBOL_TYPES = {SHT_SYMTAB, SHT_STRTAB, SHT_HASH, SHT_DYNSYM, 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF}
_SHF_ALLOC, _SHF_EXEC = 0x2, 0x4
_UNWIND = (".eh_frame", ".gcc_except_table")
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4
PF_X, PF_W = 0x1, 0x2
_EXTENDED_INDEX = 0xFFFF
_NAMES_LIMIT = 1 << 28
_COPIES = 8


class Header(Struct, frozen=True):
    number: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


class Segment(Struct, frozen=True):
    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    alignment: int


class Elf(Struct, frozen=True):
    buffer: Buffer
    machine: int
    osabi: int
    abi_version: int
    type: int
    version: int
    flags: int
    headers: tuple[Header, ...]
    segments: tuple[Segment, ...]
    addresses: AddressMap
    tables_end: int  # behind the section and program headers
    names: int  # the number of the section that has the sections' names

    @property
    def machine_name(self) -> str:
        return MACHINES.get(self.machine, f"machine {self.machine}")

    @property
    def file_type(self) -> FileType:
        if self.type == 3 and any(each.type == PT_INTERP for each in self.segments):  # noqa: PLR2004 - ET_DYN
            return "executable"
        return _TYPES.get(self.type, "other")

    def named(self, name: str) -> Header | None:
        return next((each for each in self.headers if each.name == name), None)

    def data(self, header: Header, limit: int) -> bytes:
        """A section's bytes; a section larger than any real one of its kind is refused, not allocated."""
        if header.type == SHT_NOBITS or (self.machine == MACHINE_CUDA and header.type in _CUDA_WITHOUT_BYTES):
            return b""
        if header.size > limit:
            raise MalformedError(self.buffer.name, f"section {header.name} claims {header.size:,} bytes")
        return self.buffer.read(header.offset, header.size)

    def start_of(self, header: Header, limit: int) -> bytes:
        """At most `limit` of a section's bytes, where its start tells enough."""
        return self.data(replace(header, size=min(header.size, limit)), limit)

    def sections(self) -> tuple[Section, ...]:
        size, unloaded = self.buffer.size, self._debuggers_symbols()
        return tuple(
            Section(
                each.number,
                each.name,
                "debug" if each.number in unloaded else _role(each),
                each.address,
                each.offset,
                _stored(each, size),
            )
            for each in self.headers
            if each.type
        )

    def _debuggers_symbols(self) -> set[int]:
        """The symbols of linked code that debuggers and profilers alone read: the loader has a table of its own."""
        tables = {each.number for each in self.headers if each.type == SHT_SYMTAB and not each.flags & _SHF_ALLOC}
        has_own = any(each.type == SHT_DYNSYM for each in self.headers)
        if self.machine == MACHINE_CUDA or self.type == TYPE_RELOCATABLE or len(tables) != 1 or not has_own:
            return set()
        (table,) = tables
        behind = {each.number for each in self.headers if each.type == _SHT_SYMTAB_SHNDX and each.link == table}
        names = self.headers[table].link
        found = {table, *behind, names}
        others = [each for each in self.headers if each.type and each.number not in found and each.link in found]
        if names >= len(self.headers) or self.names in (names, _EXTENDED_INDEX) or others:
            return set()
        return set() if self.headers[names].flags & _SHF_ALLOC else found


def is_foreign(head: bytes) -> bool:
    """32-bit or big-endian: no CUDA of today makes such files, but folders have them."""
    return head[:4] == MAGIC and len(head) >= HEADER_SIZE and head[4:6] != bytes([_CLASS_64, _LITTLE_ENDIAN])


def data_segments(head: bytes) -> tuple[Segment, ...] | None:
    """What is loaded and may hold data, by a file's first bytes; None where they do not tell.

    A linker that keeps code apart has a segment for it alone; others put it with all that is only read,
    behind the headers.
    """
    try:
        *_, phoff, _, _, _, phsize, phnum, _, _, _ = _HEADER.unpack_from(head)
        segments = _segments(MemoryBuffer("", head), phoff, phsize, phnum)
    except (struct.error, MalformedError):  # shorter than a header, or the segments are described elsewhere
        return None
    loaded = [each for each in segments if each.type == PT_LOAD]
    if head[:4] != MAGIC or is_foreign(head) or not loaded:
        return None
    return tuple(each for each in loaded if not each.flags & PF_X or not each.offset)


def read_elf(buffer: Buffer) -> Elf:
    """Header, segments and sections. Raises MalformedError, also for what CUDA has not been made for in years."""
    raw = buffer.read(0, min(HEADER_SIZE, buffer.size))
    if raw[:4] != MAGIC:
        raise MalformedError(buffer.name, "not an ELF file")
    if len(raw) < HEADER_SIZE:
        raise MalformedError(buffer.name, f"an ELF file of {buffer.size} bytes: cut short")
    if is_foreign(raw):
        raise MalformedError(buffer.name, "a 32-bit or big-endian ELF file, which current CUDA does not make")
    ident, kind, machine, version, _, phoff, shoff, flags, _, phsize, phnum, shsize, shnum, names = _HEADER.unpack(raw)
    segments = _segments(buffer, phoff, phsize, phnum)
    headers = _headers(buffer, shoff, shsize, shnum, names)
    ranges = [Range(each.address, each.offset, each.file_size) for each in segments if each.type == PT_LOAD]
    if not ranges:  # relocatable, or its program headers are gone
        ranges = [
            Range(each.address, each.offset, each.size) for each in headers if each.address and each.type != SHT_NOBITS
        ]
    return Elf(
        buffer=buffer,
        machine=machine,
        osabi=ident[7],
        abi_version=ident[8],
        type=kind,
        version=version,
        flags=flags,
        headers=headers,
        segments=segments,
        addresses=AddressMap(ranges),
        tables_end=max(shoff + len(headers) * shsize, phoff + len(segments) * phsize),
        names=names,
    )


def _segments(buffer: Buffer, offset: int, size: int, count: int) -> tuple[Segment, ...]:
    if not offset or not count:
        return ()
    if size != _SEGMENT.size:
        raise MalformedError(buffer.name, f"program headers of {size} bytes each")
    found = []
    for kind, flags, start, address, _, stored, memory, align in _SEGMENT.iter_unpack(
        buffer.read(offset, count * size)
    ):
        found.append(Segment(kind, flags, start, address, stored, memory, align))
    return tuple(found)


def _headers(buffer: Buffer, offset: int, size: int, count: int, names: int) -> tuple[Header, ...]:
    if not offset:
        return ()
    if size != _SECTION.size:
        raise MalformedError(buffer.name, f"section headers of {size} bytes each")
    first = _SECTION.unpack(buffer.read(offset, size))
    if count == 0:  # more than fit the field: the count stands in the first header
        count = first[5]
    if names == _EXTENDED_INDEX:
        names = first[6]
    if count * size > buffer.size:
        raise MalformedError(buffer.name, f"claims {count:,} sections, more than fit the file")
    rows = list(_SECTION.iter_unpack(buffer.read(offset, count * size)))
    table = _name_table(buffer, rows, names)
    return tuple(
        Header(index, table.at(name), kind, flags, address, start, length, link, info, each)
        for index, (name, kind, flags, address, start, length, link, info, _, each) in enumerate(rows)
    )


def _name_table(buffer: Buffer, rows: Sequence[tuple[int, ...]], index: int) -> NameTable:
    if index >= len(rows):
        return NameTable(buffer.name, b"")
    offset, size = rows[index][4], rows[index][5]
    if size > _NAMES_LIMIT:
        raise MalformedError(buffer.name, f"section names of {size:,} bytes")
    return NameTable(buffer.name, buffer.read(offset, size))


class NameTable:
    """Zero-ended names in one piece. Names may share their ends, but a file cannot make us copy at will."""

    def __init__(self, owner: str, data: bytes) -> None:
        self._owner, self._data = owner, data
        self._budget = _COPIES * len(data) + 1
        self._known: dict[int, str] = {}  # many sections may have one name

    def at(self, start: int) -> str:
        if (known := self._known.get(start)) is not None:
            return known
        end = self._data.find(b"\0", start)
        name = self._data[start : end if end >= 0 else len(self._data)]
        self._budget -= len(name)
        if self._budget < 0:
            raise MalformedError(self._owner, "its names are many times longer than the table that holds them")
        return self._known.setdefault(start, name.decode("utf-8", "replace"))


def _stored(header: Header, limit: int) -> int:
    if header.type == SHT_NOBITS or header.offset >= limit:
        return 0
    return min(header.size, limit - header.offset)


def _role(header: Header) -> Role:
    name = header.name
    if name in FATBIN_SECTIONS:
        return "device"
    if name.startswith((".debug", ".zdebug", ".rela.debug", ".gnu.debug", ".stab")):
        return "debug"
    if name.startswith(_UNWIND):
        return "unwind"
    if header.type in _SYMBOL_TYPES:
        return "symbols"
    if header.flags & _SHF_EXEC:
        return "code"
    if header.type in (SHT_RELA, SHT_REL, SHT_NOTE) or not header.flags & _SHF_ALLOC:
        return "other"
    return "data"


def notes(elf: Elf) -> Iterator[tuple[str, int, bytes]]:
    """Owner, type and content of each note."""
    places = [(each.offset, each.size) for each in elf.headers if each.type == SHT_NOTE] or [
        (each.offset, each.file_size) for each in elf.segments if each.type == PT_NOTE
    ]
    behind = 0  # sections may lie over one another; each byte is read once
    for start, size in sorted(places):
        offset, end = max(start, behind), min(start + size, elf.buffer.size)
        behind = max(behind, end)
        while offset + 12 <= end:
            owner, length, kind = struct.unpack("<III", elf.buffer.read(offset, 12))
            body = offset + 12 + (owner + 3 & ~3)
            if body + length > end:
                break
            yield (
                elf.buffer.read(offset + 12, owner).rstrip(b"\0").decode("utf-8", "replace"),
                kind,
                elf.buffer.read(body, length),
            )
            offset = body + (length + 3 & ~3)


def interpreter(elf: Elf) -> str | None:
    for each in elf.segments:
        if each.type == PT_INTERP:
            return string_at(elf.buffer, each.offset, each.offset + each.file_size)
    return None


def extent(elf: Elf) -> int:
    """The last byte that any of its tables names."""
    ends = [each.offset + each.size for each in elf.headers if each.type != SHT_NOBITS]
    ends += [each.offset + each.file_size for each in elf.segments]
    return min(max([HEADER_SIZE, elf.tables_end, *ends]), elf.buffer.size)


# Static archives (.a): their members, each an object file of its own.

ARCHIVE_MAGIC = b"!<arch>\n"
_MEMBER_HEADER = 60
_LONG_NAMES_LIMIT = 1 << 28


class ArchiveMember(Struct, frozen=True):
    buffer: SliceBuffer
    offset: int


def archive_members(buffer: Buffer) -> Iterator[ArchiveMember]:
    """The ELF members of a static archive; symbol tables and whatever else there is are passed over."""
    long_names = b""
    at = len(ARCHIVE_MAGIC)
    while at + _MEMBER_HEADER <= buffer.size:
        header = buffer.read(at, _MEMBER_HEADER)
        if not (digits := header[48:58].strip()).isdigit():
            raise MalformedError(buffer.name, f"an archive member's size is {header[48:58]!r}")
        size = bounded.digits(digits)
        start = at + _MEMBER_HEADER
        name = header[:16].rstrip().decode("utf-8", "replace")
        if header[58:60] != b"`\n":
            raise MalformedError(buffer.name, f"no archive member at {at:#x}")
        if name == "//" and size <= _LONG_NAMES_LIMIT:
            long_names = buffer.read(start, size)
        elif size >= HEADER_SIZE and buffer.read(start, 4) == MAGIC:
            yield ArchiveMember(
                SliceBuffer(buffer, start, size, f"{buffer.name}({_member_name(name, long_names)})"), start
            )
        at = start + size + size % 2


def shifted(sections: Sequence[Section], by: int) -> tuple[Section, ...]:
    return tuple(replace(each, offset=each.offset + by) for each in sections)


def _member_name(name: str, long_names: bytes) -> str:
    if name.startswith("/") and name[1:].isdigit():
        start = bounded.digits(name[1:])
        return long_names[start : start + 256].split(b"/\n", 1)[0].decode("utf-8", "replace")
    return name.rstrip("/")
