"""Fat binaries: containers and their entries, read from headers alone. Nothing is decompressed here.

The layout is undocumented and was measured on real files. A damaged container costs itself and a
finding; the walk goes on at the next one. Every byte is looked at a bounded number of times.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.facts.arch import Arch, Capability
from cuwheel.inspection.buffer import SCAN_CHUNK, Buffer, find
from cuwheel.inspection.values import DeviceCode, Entry, Finding

if TYPE_CHECKING:
    from cuwheel.facts.arch import ArchKind, Suffix
    from cuwheel.inspection.values import Compression, Kind

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ALIGNMENT = 8
# Real headers have 64 to 128 bytes; names and options of any sane length still fit this.
_HEADER_LIMIT = 1 << 16
_LOWEST_ARCH, _HIGHEST_ARCH = 10, 999
_FINDINGS_LIMIT = 20  # a section of noise must not become a report of a million lines

KIND_PTX, KIND_CUBIN, KIND_LTO = 1, 2, 8
_KINDS: dict[int, tuple[Kind, ArchKind]] = {
    KIND_PTX: ("ptx", "compute"),
    KIND_CUBIN: ("cubin", "sm"),
    KIND_LTO: ("lto-ir", "lto"),
}
FLAG_DEBUG = 0x2
FLAG_LZ4, FLAG_ZSTD = 0x2000, 0x8000
FLAG_SPECIFIC, FLAG_FAMILY = 0x100000, 0x200000
FLAG_ATTRIBUTES = 0x1000000  # the options block holds numbers, not text
_FLAGS_OF_ROWS = FLAG_LZ4 | FLAG_ZSTD | FLAG_SPECIFIC | FLAG_FAMILY


class RawEntry(NamedTuple):
    """An entry as the walk keeps it: a tuple, because a library has thousands."""

    row: int
    offset: int
    header_size: int
    payload: int
    compressed: int
    real: int
    flags: int
    minor: int
    major: int
    options_at: int
    identifier_at: int
    identifier_size: int

    @property
    def payload_offset(self) -> int:
        return self.offset + self.header_size

    @property
    def stored(self) -> int:
        """The payload's bytes without padding, as far as the header tells."""
        return self.compressed or self.payload


class RawContainer(NamedTuple):
    section: str
    offset: int
    size: int  # header included
    entries: tuple[RawEntry, ...]


@dataclass(slots=True)
class _Row:
    count: int = 0
    stored: int = 0
    real: int = 0
    debug: int = 0


@dataclass(slots=True)
class Walk:
    """Everything found so far in one file, over all of its sections."""

    buffer: Buffer
    containers: list[RawContainer] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _keys: dict[tuple[str, bool, int, int, int, int, int], int] = field(default_factory=dict)
    _rows: list[_Row] = field(default_factory=list)
    _suppressed: int = 0

    def section(self, name: str, start: int, end: int, *, linked: bool, only: int | None = None) -> None:
        """Walk the containers in [start, end), all or `only` so many, resynchronising behind damage."""
        position = start
        limit = None if only is None else len(self.containers) + only
        while position + CONTAINER.size <= end and len(self.containers) != limit:
            head = self.buffer.read(position, CONTAINER.size)
            magic, version, header_size, size = CONTAINER.unpack(head)
            if head[:4] == MAGIC and header_size >= CONTAINER.size:
                position = self._container(name, position, header_size, size, end, linked=linked)
                if version != 1:
                    self._complain(name, position, f"the container has version {version}, and only 1 is known")
            elif magic == 0:
                position = self._after_padding(position, end)
            else:
                self._complain(name, position, "bytes that are not a container")
                position = self._next_magic(position + 1, end)
        self._confess()

    def device_code(self) -> tuple[DeviceCode, ...]:
        return tuple(_row(key, row) for key, row in zip(self._keys, self._rows, strict=True))

    def entries(self) -> tuple[Entry, ...]:
        rows = self.device_code()
        return tuple(
            self._entry(rows[raw.row], index, raw)
            for index, container in enumerate(self.containers)
            for raw in container.entries
        )

    def _container(self, name: str, at: int, header: int, size: int, end: int, *, linked: bool) -> int:
        """Keep one container; where to go on."""
        stop = at + header + size
        cut = stop > end
        position = at + header
        entries: list[RawEntry] = []
        problem = "the container is longer than its section" if cut else ""
        while position < min(stop, end):
            found = self._raw_entry(name, position, min(stop, end), linked=linked)
            if found is None:
                problem = problem or f"entry {len(entries)} at {position:#x} is damaged"
                break
            entries.append(found)
            position = found.payload_offset + found.payload
        self.containers.append(RawContainer(name, at, min(stop, end) - at, tuple(entries)))
        if not problem:
            return stop
        self._complain(name, at, problem)
        trusted = not cut and (stop == end or self.buffer.read(stop, min(4, end - stop)) in (MAGIC, b"\0\0\0\0"))
        return stop if trusted else self._next_magic(position, end)

    def _raw_entry(self, section: str, at: int, stop: int, *, linked: bool) -> RawEntry | None:
        if at + ENTRY.size > stop:
            return None
        (
            kind,
            _,
            header,
            payload,
            compressed,
            options,
            minor,
            major,
            arch,
            name_at,
            name_size,
            flags,
            _,
            real,
        ) = ENTRY.unpack(self.buffer.read(at, ENTRY.size))
        plausible = ENTRY.size <= header <= _HEADER_LIMIT and _LOWEST_ARCH <= arch <= _HIGHEST_ARCH
        if not plausible or at + header + payload > stop or compressed > payload:
            return None
        if not compressed:
            real = payload
        isa = (major, minor) if kind == KIND_PTX else (0, 0)
        key = (
            section,
            linked,
            kind,
            arch,
            flags & _FLAGS_OF_ROWS if compressed else flags & ~0xFFFF & _FLAGS_OF_ROWS,
            *isa,
        )
        index = self._keys.setdefault(key, len(self._rows))
        if index == len(self._rows):
            self._rows.append(_Row())
        row = self._rows[index]
        row.count += 1
        row.stored += header + payload
        row.real += real
        row.debug += bool(flags & FLAG_DEBUG)
        return RawEntry(index, at, header, payload, compressed, real, flags, minor, major, options, name_at, name_size)

    def _entry(self, row: DeviceCode, container: int, raw: RawEntry) -> Entry:
        head = self.buffer.read(raw.offset, raw.header_size)
        return Entry(
            container=container,
            section=row.section,
            offset=raw.offset,
            kind=row.kind,
            arch=row.arch,
            linked=row.linked,
            compression=row.compression,
            ptx_isa=row.ptx_isa,
            cubin_abi=raw.minor if row.kind == "cubin" else None,
            header_size=raw.header_size,
            bytes=raw.payload,
            compressed_bytes=raw.compressed,
            real_bytes=raw.real,
            debug=bool(raw.flags & FLAG_DEBUG),
            flags=raw.flags,
            options=_options(head, raw),
            identifier=_text(head, raw.identifier_at, raw.identifier_size),
        )

    def _after_padding(self, position: int, end: int) -> int:
        """Behind the zeros at `position`, at a multiple of the alignment."""
        while position < end:
            chunk = self.buffer.read(position, min(SCAN_CHUNK, end - position))
            rest = chunk.lstrip(b"\0")
            if rest:
                return position + (len(chunk) - len(rest)) // _ALIGNMENT * _ALIGNMENT
            position += len(chunk)
        return end

    def _next_magic(self, position: int, end: int) -> int:
        return next((at for at in find(self.buffer, MAGIC, position, end) if at % 4 == 0), end)

    def _complain(self, section: str, offset: int, problem: str) -> None:
        if len(self.findings) >= _FINDINGS_LIMIT:
            self._suppressed += 1
            return
        self.findings.append(
            Finding(
                rule="fatbin-damaged",
                severity="error",
                message=f"a fat binary in {section or 'the file'} is damaged: {problem}",
                evidence=(f"offset {offset:#x}",),
                fix="build or download the file again",
            )
        )

    def _confess(self) -> None:
        if self._suppressed:
            self.findings.append(
                Finding(
                    rule="fatbin-damaged",
                    severity="error",
                    message=f"{self._suppressed:,} more places in fat binaries are damaged",
                )
            )
            self._suppressed = 0


def _row(key: tuple[str, bool, int, int, int, int, int], row: _Row) -> DeviceCode:
    section, linked, kind_number, number, flags, major, minor = key
    kind, arch_kind = _KINDS.get(kind_number, ("unknown", "sm"))
    return DeviceCode(
        kind=kind,
        arch=str(Arch(Capability.from_number(number), _suffix(flags), arch_kind)),
        section=section,
        linked=linked,
        compression=_compression(flags),
        ptx_isa=f"{major}.{minor}" if kind == "ptx" else None,
        count=row.count,
        bytes=row.stored,
        real_bytes=row.real,
        debug_count=row.debug,
    )


def _suffix(flags: int) -> Suffix:
    if flags & FLAG_SPECIFIC:
        return "a"
    return "f" if flags & FLAG_FAMILY else ""


def _compression(flags: int) -> Compression:
    if flags & FLAG_ZSTD:
        return "zstd"
    return "lz4" if flags & FLAG_LZ4 else "none"


def _options(head: bytes, raw: RawEntry) -> str:
    """What the compiler was told. The block starts with the place and the length of the text."""
    if raw.flags & FLAG_ATTRIBUTES or not ENTRY.size <= raw.options_at <= len(head) - 8:
        return ""
    return _text(head, *struct.unpack_from("<II", head, raw.options_at)).strip()


def _text(head: bytes, offset: int, size: int) -> str:
    return head[offset : offset + size].split(b"\0", 1)[0].decode("utf-8", "replace") if offset else ""
