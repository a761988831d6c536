"""Fat binaries: containers and their entries, read from their headers and, of PTX, the first lines; their payloads.

The layout is undocumented and was measured on real files. A damaged container costs itself and a
finding; the walk goes on at the next one. Every byte is looked at a bounded number of times.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel_core.device_code import limits
from cuwheel_core.device_code.libraries import Compression, DeviceCode, Entry, Kind
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts.arch import Arch, ArchKind, Capability, Suffix
from cuwheel_core.support import bounded
from cuwheel_core.support.buffer import SCAN_CHUNK, Buffer, find, zstd_compressed, zstd_first_bytes
from cuwheel_core.support.finding import Finding, finding
from cuwheel_core.support.patterns import lazy_pattern

# The payload of an entry, decompressed under a hard ceiling.

# The most seen is seventyfold; much more is a bomb.
_HIGHEST_RATIO = 256
_SMALL_PAYLOAD = 1 << 16
_START_SIZE = 512
_ZSTD_BLOCK = (1 << 17) + 32  # the most that one takes with the headers before it: it is decoded as a whole
PAYLOAD_LIMIT = 1 << 29
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER = 18  # the most that one takes
_RAW_BLOCK, _REPEATED, _COMPRESSED = 0, 1, 2


def read_payload(buffer: Buffer, offset: int, stored: int, real: int, compression: Compression) -> bytes:
    """What the `stored` bytes at `offset` hold: `real` bytes, or the file is malformed."""
    if stored > PAYLOAD_LIMIT or real > PAYLOAD_LIMIT or real > _SMALL_PAYLOAD + _HIGHEST_RATIO * stored:
        raise MalformedError(buffer.name, f"device code at {offset:#x} claims {real:,} bytes in {stored:,}")
    data = buffer.read(offset, stored)
    if compression == "none":
        return data
    unpacked = _lz4(data, real) if compression == "lz4" else zstd_first_bytes(data, real + 1)
    if unpacked is None or len(unpacked) != real:
        raise MalformedError(
            buffer.name, f"device code at {offset:#x} does not decompress to the {real:,} bytes it claims"
        )
    return unpacked


def payload_start(buffer: Buffer, offset: int, stored: int, compression: Compression) -> bytes:
    """The first bytes of the payload, a few hundred if it has them; nothing where they cannot be read."""
    data = buffer.read(offset, payload_start_size(stored, compression))
    if compression == "none":
        return data
    if compression == "lz4":  # whose library decodes whole blocks only, and some are megabytes
        return _lz4_decoded(data, _START_SIZE)
    return zstd_first_bytes(data, _START_SIZE) or b""


def payload_start_size(stored: int, compression: Compression) -> int:
    """How much of a payload `payload_start` reads."""
    return min(stored, _ZSTD_BLOCK if compression == "zstd" else _START_SIZE)


def zstd_frame(buffer: Buffer, offset: int, end: int) -> tuple[int, int] | None:
    """How long the ZSTD frame at `offset` is, and what it unpacks to by its own word; None where none is whole."""
    import zstandard  # noqa: PLC0415 - only where something is compressed with it

    head = buffer.read(offset, min(_ZSTD_HEADER, end - offset))
    try:
        parameters = zstandard.get_frame_parameters(head)
        at = offset + zstandard.frame_header_size(head)
    except (zstandard.ZstdError, ValueError):
        return None
    if parameters.content_size in (zstandard.CONTENTSIZE_ERROR, zstandard.CONTENTSIZE_UNKNOWN):
        return None
    last = 0
    while not last:
        if at + 3 > end:
            return None
        block = int.from_bytes(buffer.read(at, 3), "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind not in (_RAW_BLOCK, _REPEATED, _COMPRESSED):
            return None
        at += 3 + (1 if kind == _REPEATED else size)
    at += 4 if parameters.has_checksum else 0
    return (at - offset, parameters.content_size) if at <= end else None


def _lz4_decoded(data: bytes, most: int) -> bytes:
    """A block's first bytes, `most` and a few more, as far as `data` goes."""
    out = bytearray()
    at = 0
    try:
        while len(out) < most:
            token = data[at]
            literals, at = _lz4_length(data, at + 1, token >> 4)
            out += data[at : at + literals]
            at += literals
            back = int.from_bytes(data[at : at + 2], "little")
            if back == 0:  # the last literals, behind which nothing stands; anywhere else it would be damage
                break
            count, at = _lz4_length(data, at + 2, token & 15)
            _repeat(out, back, min(count + 4, most))
    except IndexError:  # the bytes that were read end here
        pass
    return bytes(out)


def _repeat(out: bytearray, back: int, count: int) -> None:
    """Copy `count` bytes that begin `back` bytes before the end: what is copied may be copied again."""
    if back > len(out):
        raise IndexError
    while count > 0:
        piece = out[-back:][:count]
        out += piece
        count -= len(piece)


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    """A length that starts with four bits, and where it ends."""
    if length < 15:  # noqa: PLR2004 - all four are set where more follows
        return length, at
    while data[at] == 255:  # noqa: PLR2004
        length, at = length + 255, at + 1
    return length + data[at], at + 1


def _lz4(data: bytes, size: int) -> bytes | None:
    try:
        import lz4.block  # noqa: PLC0415 - only where something is compressed with it
    except ImportError:  # in a browser
        return _lz4_decoded(data, size)
    try:
        unpacked: bytes = lz4.block.decompress(data, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError):
        return None
    return unpacked


MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ALIGNMENT = 8
CONTAINER_VERSION = 1


def container_of(entries: bytes) -> bytes:
    """A container that holds these, and nothing else: by itself, a file as fatbinary makes it."""
    return MAGIC + CONTAINER.pack(0, CONTAINER_VERSION, CONTAINER.size, len(entries))[len(MAGIC) :] + entries


# Real headers have 64 to 128 bytes; names and options of any sane length still fit this.
_HEADER_LIMIT = 1 << 16
_LOWEST_ARCH, _HIGHEST_ARCH = 10, 999
_MOST_CONTAINERS, _MOST_ENTRIES = 300_000, 300_000  # the most seen are 24,454 and 27,000
_MOST_TEXTS = 100_000  # of PTX that is looked into, 0.1 ms each; the most seen are 8,183
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
_PTX_VERSION = lazy_pattern(rb"^[ \t]*\.version[ \t]+(\d{1,3})\.(\d{1,3})\b", re.MULTILINE | re.ASCII)
_FLAGS_OF_RAW_ROWS = FLAG_SPECIFIC | FLAG_FAMILY
_FLAGS_OF_ROWS = _FLAGS_OF_RAW_ROWS | FLAG_LZ4 | FLAG_ZSTD


class RawEntry(NamedTuple):
    """An entry as the walk keeps it: its place, and its header as unpacked. A library has thousands."""

    row: int  # of those that are alike
    offset: int
    kind: int
    version: int
    header_size: int
    payload: int
    compressed: int
    options_at: int
    minor: int
    major: int
    arch: int
    identifier_at: int
    identifier_size: int
    flags: int
    reserved: int
    uncompressed: int

    @property
    def payload_offset(self) -> int:
        return self.offset + self.header_size

    @property
    def stored(self) -> int:
        """The payload's bytes without padding, as far as the header tells."""
        return self.compressed or self.payload

    @property
    def real(self) -> int:
        return self.uncompressed if self.compressed else self.payload


# What entries of one row have in common: section, linked, kind, architecture, flags, ISA.
_Key: TypeAlias = tuple[str, bool, int, int, int, int, int]


class RawContainer(NamedTuple):
    section: str
    offset: int
    size: int  # header included; of a damaged one, as far as it was understood
    entries: tuple[RawEntry, ...]


class Walk(Struct):
    """Everything found so far in one file, over all of its sections."""

    buffer: Buffer
    containers: list[RawContainer] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    _keys: dict[_Key, int] = field(default_factory=dict)
    _texts: int = 0
    _differing: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _count: int = 0
    _suppressed: int = 0

    def section(self, name: str, start: int, end: int, *, linked: bool) -> None:
        """Walk the containers in [start, end), resynchronising behind damage."""
        position = start
        while position + CONTAINER.size <= end:
            if self._full():
                break
            head = self.buffer.read(position, CONTAINER.size)
            magic, version, header_size, size = CONTAINER.unpack(head)
            if head[:4] == MAGIC and header_size >= CONTAINER.size:
                if version != CONTAINER_VERSION:
                    self._complain(
                        name, position, f"the container has version {version}, but only {CONTAINER_VERSION} is known"
                    )
                stop, sound = self._container(name, position, header_size, size, end, linked=linked)
                position = stop if sound else self._next_magic(stop, end)
            elif magic == 0 and (behind := self._after_padding(position, end)) > position:
                position = behind
            else:
                self._complain(name, position, "bytes that are not a container")
                position = self._next_magic(position + 1, end)

    def single(self, name: str, at: int, end: int) -> int:
        """Walk the one container that stands at `at`; where it ends."""
        if self._full():
            return end
        _, _, header_size, size = CONTAINER.unpack(self.buffer.read(at, CONTAINER.size))
        return self._container(name, at, header_size, size, end, linked=True)[0]

    def device_code(self) -> tuple[DeviceCode, ...]:
        counts, stored, real, debug = ([0] * len(self._keys) for _ in range(4))
        for container in self.containers:
            for entry in container.entries:
                row = entry.row
                counts[row] += 1
                stored[row] += entry.header_size + entry.payload
                real[row] += entry.uncompressed if entry.compressed else entry.payload
                debug[row] += entry.flags & FLAG_DEBUG != 0
        return tuple(map(_row, self._keys, counts, stored, real, debug))

    def entries(self) -> tuple[Entry, ...]:
        rows = self.device_code()
        return tuple(
            self._entry(rows[raw.row], index, raw)
            for index, container in enumerate(self.containers)
            for raw in container.entries
        )

    def _full(self) -> bool:
        if len(self.containers) < _MOST_CONTAINERS and self._count < _MOST_ENTRIES:
            return False
        limits.met(
            f"{_MOST_CONTAINERS:,} containers or {_MOST_ENTRIES:,} entries", "the rest of the device code was not read"
        )
        return True

    def _container(self, name: str, at: int, header: int, size: int, end: int, *, linked: bool) -> tuple[int, bool]:
        """Keep one container; where to go on, and whether something sound is known to stand there."""
        stop = at + header + size
        entries, position = self._entries(name, at + header, min(stop, end), linked=linked)
        self._count += len(entries)
        self.containers.append(RawContainer(name, at, position - at, tuple(entries)))
        if position == stop:
            return stop, True
        if len(entries) >= _MOST_ENTRIES:
            self._full()
        elif position < min(stop, end):
            self._complain(name, at, f"entry {len(entries)} at {position:#x} is not valid")
        else:
            self._complain(name, at, "the container is longer than its section")
        sound = stop == end or (stop < end and self._goes_on(stop, end))
        return (stop, True) if sound else (max(position, at + 1), False)

    def _goes_on(self, at: int, end: int) -> bool:
        """Whether a container or padding stands at `at`."""
        return self.buffer.read(at, min(4, end - at)) in (MAGIC, bytes(min(4, end - at)))

    def _entries(self, section: str, at: int, stop: int, *, linked: bool) -> tuple[list[RawEntry], int]:
        """The entries from `at` on, and where they end: before `stop` if one is not valid."""
        entries: list[RawEntry] = []
        read, unpack, keys = self.buffer.read, ENTRY.unpack, self._keys
        new = tuple.__new__  # what RawEntry._make does, less a call for each of thousands
        while at + ENTRY.size <= stop and len(entries) < _MOST_ENTRIES:
            fields = unpack(read(at, ENTRY.size))
            kind, _, header, payload, compressed, _, minor, major, arch, _, _, flags, _, _ = fields
            following: int = at + header + payload
            if following > stop or compressed > payload or not ENTRY.size <= header <= _HEADER_LIMIT:
                break
            if not _LOWEST_ARCH <= arch <= _HIGHEST_ARCH:
                break
            flags &= _FLAGS_OF_ROWS if compressed else _FLAGS_OF_RAW_ROWS
            if kind == KIND_PTX:
                major, minor = self._isa(at, header, compressed or payload, flags, (major, minor))
            else:
                major = minor = 0
            row = keys.setdefault((section, linked, kind, arch, flags, major, minor), len(keys))
            entries.append(new(RawEntry, (row, at, *fields)))
            at = following
        return entries, at

    def _isa(self, at: int, header: int, stored: int, flags: int, header_isa: tuple[int, int]) -> tuple[int, int]:
        """The ISA that the PTX states, by which the driver goes; where that cannot be read, what its entry says."""
        self._texts += 1
        if self._texts > _MOST_TEXTS:
            limits.met(f"{_MOST_TEXTS:,} pieces of PTX", "the ISA of the rest is taken from their entries")
            return header_isa
        text = payload_start(self.buffer, at + header, stored, compression_of(flags))
        match = _PTX_VERSION.search(text)
        if match is None:
            return header_isa
        stated = bounded.digits(match[1]), bounded.digits(match[2])
        if stated != header_isa:
            self._differing.setdefault((_isa_text(header_isa), _isa_text(stated)), []).append(at)
        return stated

    def suppressed(self) -> Iterator[Finding]:
        """Damage beyond what is listed place by place."""
        if self._suppressed:
            yield finding("fatbin-damaged", f"{self._suppressed:,} more damaged places in fat binaries")

    def differences(self) -> Iterator[Finding]:
        """PTX whose entries say another ISA than its text."""
        for (header_isa, stated), places in self._differing.items():
            yield finding(
                "ptx-version-differs",
                f"PTX entries ({len(places):,}) say ISA {header_isa}, and their text says {stated}: the driver "
                "goes by the text",
                evidence=tuple(f"entry at offset {at:#x}" for at in places[:5]),
            )

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
        stored_from = getattr(self.buffer, "stored_from", None)
        while (position := stored_from(position) if stored_from else position) < end:
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
            finding(
                "fatbin-damaged",
                f"a fat binary in {section or 'the file'} is damaged: {problem}",
                evidence=(f"offset {offset:#x}",),
            )
        )


def _row(key: _Key, count: int, stored: int, real: int, debug: int) -> DeviceCode:
    section, linked, kind_number, number, flags, major, minor = key
    kind, arch_kind = _KINDS.get(kind_number, ("unknown", "sm"))
    suffix: Suffix = "a" if flags & FLAG_SPECIFIC else "f" if flags & FLAG_FAMILY else ""
    return DeviceCode(
        kind=kind,
        arch=Arch(Capability.from_number(number), suffix, arch_kind),
        section=section,
        linked=linked,
        compression=compression_of(flags),
        ptx_isa=_isa_text((major, minor)) if kind == "ptx" else None,
        count=count,
        bytes=stored,
        real_bytes=real,
        debug_count=debug,
    )


def _isa_text(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"


def compression_of(flags: int) -> Compression:
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


# What compressing device code would save, estimated from a sample: compressing all of it takes seconds.

_WORTH_IT = 1 << 20
_SAMPLES = 8
_SAMPLE_SIZE = 1 << 18


def with_estimated_saving(walk: Walk, rows: Sequence[DeviceCode]) -> tuple[DeviceCode, ...]:
    """`rows` with `saving` where their entries are stored raw and there is enough of them to matter."""
    raw = {index for index, row in enumerate(rows) if row.compression == "none"}
    if sum(rows[index].bytes for index in raw) < _WORTH_IT:
        return tuple(rows)
    entries = [entry for container in walk.containers for entry in container.entries if entry.row in raw]
    ratio = _compression_ratio(walk, sorted(entries, key=lambda entry: -entry.payload)[:_SAMPLES])
    return tuple(
        replace(row, saving=int(row.real_bytes * (1 - ratio))) if index in raw else row
        for index, row in enumerate(rows)
    )


def _compression_ratio(walk: Walk, entries: Sequence[RawEntry]) -> float:
    before = after = 0
    for entry in entries:
        length = min(entry.payload, _SAMPLE_SIZE)
        middle = (entry.payload - length) // 2  # the ends are tables, which compress better than code
        sample = walk.buffer.read(entry.payload_offset + middle, length)
        before += len(sample)
        after += len(zstd_compressed(sample))
    return min(after / before, 1.0) if before else 1.0
