"""Members of a zip as buffers. Nothing is written to disk, and nothing a hostile zip declares is believed."""

from __future__ import annotations

import bisect
import functools
import importlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

from cuwheel_core.errors import MalformedError, UnreadableError, UnsafeWheelError
from cuwheel_core.support.buffer import Buffer, BufferFile, FileBuffer, MemoryBuffer, SliceBuffer, check
from cuwheel_core.support.finding import Finding, finding

if TYPE_CHECKING:
    from types import ModuleType


# Deflated zip members as buffers: small ones in memory, large ones inflated once and then read in place.
#
# The one pass over a large member leaves checkpoints, copies of the decompressor every few megabytes,
# and any later read inflates from the nearest, as far as it must. Its start and its end, where tables are, and what a
# listener asks for stay in memory, up to a few megabytes. So a library of 456 MB costs some twenty.

# Measured: less costs calls, more costs memory, and four times the output does not stay in the processor's cache.
_INPUT = 3 << 15
_SPARE = 1 << 10  # more than inflating a few thousand bytes takes, and what deflate has to say of them
_OUTPUT = 1 << 18
_SPACING = 1 << 22
_SEGMENTS = 2  # of the space between checkpoints, kept inflated
_START, _END = 1 << 20, 1 << 22  # that stay in memory
_ASKED_FOR = 1 << 22  # at most, of what a listener wants kept
_RAW_DEFLATE = -15


@functools.cache
def _engine() -> ModuleType:
    """zlib-ng where it is installed: the same interface, and half the time."""
    try:
        return importlib.import_module("zlib_ng.zlib_ng")
    except ImportError:
        return zlib


def _decompressor() -> zlib._Decompress:
    found: zlib._Decompress = _engine().decompressobj(_RAW_DEFLATE)
    return found


class Packed:
    """A member's compressed bytes and what the zip says of them."""

    def __init__(self, source: Buffer, offset: int, stored: int, size: int, crc: int, name: str) -> None:
        self.source, self.offset, self.stored = source, offset, stored
        self.size, self.crc, self.name = size, crc, name

    def damaged(self, problem: str) -> MalformedError:
        return MalformedError(self.name, problem, hint="download the wheel again")


def start_inflating(packed: Packed, count: int) -> bytes:
    """The first bytes, for recognising what it is."""
    found = b""
    try:
        # No more of it than that takes: of a wheel on a server each piece is a request.
        for piece, _ in _stream(packed, _decompressor(), 0, count, min(_INPUT, count + _SPARE)):
            found += piece
            if len(found) >= count:
                break
        return found[:count]
    except _engine().error as error:
        raise packed.damaged(f"does not inflate: {error}") from error


def inflated_pieces(packed: Packed) -> Iterator[bytes]:
    """The whole member, piece by piece, checked at its end."""
    return (chunk for chunk, _ in _checked(packed, _decompressor()))


class Capture(Protocol):
    """Hears every byte of the first pass, and keeps what readers will come back for, by its offset."""

    pieces: dict[int, bytes]

    def feed(self, offset: int, chunk: bytes) -> bool:
        """Whether all of it should be kept."""

    def clean_until(self, position: int) -> int:
        """How far on from `position` it found nothing that it looks for."""


class InflatedBuffer:
    """A large member. `advance` is called for every byte that the first pass reads."""

    def __init__(self, packed: Packed, capture: Capture | None, advance: Callable[[int], None]) -> None:
        self.name, self.size = packed.name, packed.size
        self._packed = packed
        self._offsets: list[int] = []
        self._checkpoints: list[tuple[zlib._Decompress, int]] = []
        self._segments: dict[int, _Segment] = {}  # the one that was read last is last
        self._kept_offsets: list[int] = []
        self._kept: list[bytes] = []
        self._pieces = capture.pieces if capture else {}
        self.clean_until = capture.clean_until if capture else None
        self._first_pass(capture, advance)

    def read(self, offset: int, count: int) -> bytes:
        check(self, offset, count)
        piece = self._pieces.get(offset)
        if piece is not None and count <= len(piece):
            return piece[:count]
        found = []
        while count:
            part = self._kept_part(offset, count) or self._inflated_part(offset, count)
            if not part:
                raise self._packed.damaged("changed while it was being read")
            found.append(part)
            offset += len(part)
            count -= len(part)
        return b"".join(found)

    def close(self) -> None:
        self._segments.clear()
        self._kept_offsets.clear()
        self._kept.clear()
        self._checkpoints.clear()

    def _first_pass(self, capture: Capture | None, advance: Callable[[int], None]) -> None:
        inflater = _decompressor()
        self._remember(inflater, 0, 0)
        position, room = 0, _ASKED_FOR
        for chunk, consumed in _checked(self._packed, inflater):
            asked = capture is not None and capture.feed(position, chunk) and room >= len(chunk)
            following = position + len(chunk)
            if asked or position < _START or following > self.size - _END:
                self._kept_offsets.append(position)
                self._kept.append(chunk)
                room -= len(chunk) if asked else 0
            position = following
            advance(len(chunk))
            # A copy holds on to input that is still to be inflated: best when there is none.
            spacing = _SPACING if not inflater.unconsumed_tail else 2 * _SPACING
            if position - self._offsets[-1] >= spacing and not inflater.eof:
                self._remember(inflater, position, consumed)

    def _remember(self, inflater: zlib._Decompress, position: int, consumed: int) -> None:
        self._offsets.append(position)
        self._checkpoints.append((inflater.copy(), consumed))

    def _kept_part(self, offset: int, count: int) -> bytes:
        """What of it stayed in memory; nothing where it did not."""
        index = bisect.bisect_right(self._kept_offsets, offset) - 1
        start = offset - self._kept_offsets[index] if index >= 0 else 0
        return self._kept[index][start : start + count] if index >= 0 else b""

    def _inflated_part(self, offset: int, count: int) -> bytes:
        """The same from the nearest checkpoint, at most as far as the next."""
        index = bisect.bisect_right(self._offsets, offset) - 1
        start = offset - self._offsets[index]
        segment = self._segments.pop(index, None)
        if segment is None:
            inflater, consumed = self._checkpoints[index]
            end = self._offsets[index + 1] if index + 1 < len(self._offsets) else self.size
            stream = _stream(self._packed, inflater.copy(), consumed, _OUTPUT)
            segment = _Segment(end - self._offsets[index], stream)
            while len(self._segments) >= _SEGMENTS:
                del self._segments[next(iter(self._segments))]
        self._segments[index] = segment
        try:
            return segment.read(start, start + count)
        except _engine().error as error:  # it inflated once
            raise self._packed.damaged("changed while it was being read") from error


class _Segment:
    """What lies between two checkpoints, inflated as far as it was asked for."""

    def __init__(self, size: int, stream: Iterator[tuple[bytes, int]]) -> None:
        self._size, self._stream = size, stream
        self._data = bytearray()

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self._size)
        while len(self._data) < stop and (found := next(self._stream, None)):
            self._data += found[0]
        return bytes(memoryview(self._data)[start:stop])


def _checked(packed: Packed, inflater: zlib._Decompress) -> Iterator[tuple[bytes, int]]:
    """Inflate all of it; it must have the size and the checksum that the zip declares, and no more."""
    have = checksum = 0
    crc32 = _engine().crc32
    try:
        for chunk, consumed in _stream(packed, inflater, 0, _OUTPUT):
            have += len(chunk)
            if have > packed.size:
                raise packed.damaged(f"inflates to more than the {packed.size:,} bytes that the zip declares")
            checksum = crc32(chunk, checksum)
            yield chunk, consumed
    except _engine().error as error:
        raise packed.damaged(f"does not inflate: {error}") from error
    if have != packed.size:
        raise packed.damaged(f"inflates to {have:,} bytes, and the zip declares {packed.size:,}")
    if checksum != packed.crc:
        raise packed.damaged("its checksum is wrong")


def _stream(
    packed: Packed, inflater: zlib._Decompress, consumed: int, most: int, at_once: int = _INPUT
) -> Iterator[tuple[bytes, int]]:
    """Pieces of at most `most` bytes, each with how much of the input was consumed for it and those before it."""
    tail = b""
    while not inflater.eof:
        if not tail:
            wanted = min(at_once, packed.stored - consumed)
            if not wanted:
                return
            tail = packed.source.read(packed.offset + consumed, wanted)
            consumed += wanted
        chunk = inflater.decompress(tail, most)
        tail = inflater.unconsumed_tail
        if chunk:
            yield chunk, consumed - len(tail)


IN_MEMORY = 1 << 24
TEXT_LIMIT = 1 << 26
_CHUNK = 1 << 20
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED, _PATCH, _UTF8 = 0x41, 0x20, 0x800  # the first: in the old way, or in the strong one
# Code deflates to a third; what is much smaller than that, and large, was made to hurt.
_HIGHEST_RATIO = 200
_LARGE = 1 << 26
_SHOWN = 5
# No tool writes these by accident, and installers differ in what they make of them.
_HARMFUL = ("zip-nameless", "zip-traversal", "zip-duplicate", "zip-overlap", "zip-bomb")
_ERRORS = (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OverflowError, IndexError)


class Member(NamedTuple):
    name: str
    size: int
    stored: int
    crc: int
    method: int
    header_offset: int


class _Problem(NamedTuple):
    """Why a member is not read."""

    rule: str
    words: str


class ZipReader:
    def __init__(self, path: Path, source: Buffer | None = None) -> None:
        """`source`: the bytes, where they are not in a file at `path`; closed with the reader."""
        self.name = str(path)
        self.findings: list[Finding] = []
        self._unsafe: list[str] = []
        try:
            with zipfile.ZipFile(cast("BinaryIO", BufferFile(source)) if source else path) as archive:
                infos = archive.infolist()
                directory = archive.start_dir
        except _ERRORS as error:
            problem = f"not a zip file that can be read: {error}"
            raise MalformedError(
                path, problem, hint="it is not whole, or no wheel: download or build it again"
            ) from error
        except OSError as error:
            raise UnreadableError.from_os(error, path) from error
        self.members = {each.name: each for each in self._sound(infos, directory)}
        if self._unsafe:
            raise UnsafeWheelError(path, self._unsafe)
        self.infos = tuple(each for each in infos if each.filename in self.members)  # in the order of its directory
        self.source: Buffer = source or FileBuffer(path)

    def info(self, name: str) -> zipfile.ZipInfo:
        return next(each for each in self.infos if each.filename == name)

    def head(self, member: Member, count: int) -> bytes:
        count = min(count, member.size)
        packed = self._packed(member)
        if member.method == zipfile.ZIP_STORED:
            return self.source.read(packed.offset, count)
        return start_inflating(packed, count) if count else b""

    def open(self, member: Member, advance: Callable[[int], None], capture: Capture | None = None) -> Buffer:
        """A buffer over the member; a large one is inflated here, and `advance` and `capture` hear of it."""
        packed = self._packed(member)
        if member.method == zipfile.ZIP_STORED:
            # Of a wheel on a server only the pieces that are needed come here.
            if isinstance(self.source, FileBuffer):
                for _ in self.chunks(member):
                    pass
            advance(member.size)
            return SliceBuffer(self.source, packed.offset, member.size, member.name)
        if member.size > IN_MEMORY:
            return InflatedBuffer(packed, capture, advance)
        advance(member.size)
        return MemoryBuffer(member.name, b"".join(inflated_pieces(packed)))

    def pieces(self, member: Member) -> Iterator[tuple[bytes, int]]:
        """A deflated member from its start on; each piece with how much was read for it and for those before it."""
        return _checked(self._packed(member), _decompressor())

    def read(self, member: Member) -> bytes:
        """A member that is small enough to be held."""
        if member.size > TEXT_LIMIT:
            raise MalformedError(member.name, f"has {member.size:,} bytes, of at most {TEXT_LIMIT:,}")
        return b"".join(self.chunks(member))

    def chunks(self, member: Member) -> Iterator[bytes]:
        """The member's content, checked at its end against what the zip says of it."""
        packed = self._packed(member)
        if member.method != zipfile.ZIP_STORED:
            yield from inflated_pieces(packed)
            return
        checksum = 0
        for offset in range(0, member.size, _CHUNK):
            chunk = self.source.read(packed.offset + offset, min(_CHUNK, member.size - offset))
            checksum = zlib.crc32(chunk, checksum)
            yield chunk
        if checksum != member.crc:
            raise packed.damaged("its checksum is wrong")

    def packed_chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """A member's bytes as they stand in the zip."""
        start, end = self._data_offset(self.members[info.filename]), info.compress_size
        return (self.source.read(start + at, min(_CHUNK, end - at)) for at in range(0, end, _CHUNK))

    def text(self, name: str) -> str | None:
        """A small text file of the wheel, or None where it has none of that name."""
        member = self.members.get(name)
        if member is None:
            return None
        if member.size > TEXT_LIMIT:
            problem = f"{name!r}: {member.size:,} bytes, of at most {TEXT_LIMIT:,}"
            self.findings.append(_unsound("zip-size", [problem]))
            return None
        try:
            buffer = self.open(member, lambda _: None)
            return buffer.read(0, buffer.size).decode("utf-8", "replace")
        except MalformedError as error:
            self.findings.append(_unsound("zip-damaged", [f"{name!r}: {error.problem}"]))
            return None

    def close(self) -> None:
        self.source.close()

    def _packed(self, member: Member) -> Packed:
        offset = self._data_offset(member)
        return Packed(self.source, offset, member.stored, member.size, member.crc, member.name)

    def _data_offset(self, member: Member) -> int:
        """Behind the member's own header, whose length only it tells."""
        name, header = member.name, member.header_offset
        signature, _, flags, *_, name_size, extra_size = _LOCAL.unpack(self.source.read(header, _LOCAL.size))
        if signature != b"PK\x03\x04":
            raise MalformedError(name, "the zip has no such member where it says")
        own = self.source.read(header + _LOCAL.size, name_size)
        # Installers that unpack while they download never see the directory: they would write another file.
        if name != own.decode("utf-8" if flags & _UTF8 else "cp437", "replace").partition("\0")[0]:
            raise MalformedError(name, "its header has another name than the zip's directory")
        return header + _LOCAL.size + int(name_size) + int(extra_size)

    def _sound(self, infos: list[zipfile.ZipInfo], directory: int) -> Iterator[Member]:
        """The members that may be read. What was made to do harm is refused whole; the others become findings."""
        end = 0
        unread: dict[str, list[str]] = {}
        seen: set[str] = set()
        for info in sorted(infos, key=lambda each: each.header_offset):
            problem = self._problem(info, end, directory, seen)
            end = max(end, info.header_offset + _LOCAL.size + info.compress_size)
            seen.add(info.filename)
            if problem and problem.rule in _HARMFUL:
                self._unsafe.append(f"{info.filename!r}: {problem.words}")
            elif problem:
                unread.setdefault(problem.rule, []).append(f"{info.filename!r}: {problem.words}")
            elif not info.is_dir():
                yield Member(
                    info.filename, info.file_size, info.compress_size, info.CRC, info.compress_type, info.header_offset
                )
        self.findings += [_unsound(rule, problems) for rule, problems in unread.items()]

    def _problem(self, info: zipfile.ZipInfo, end: int, directory: int, seen: set[str]) -> _Problem | None:
        if not info.filename:
            return _Problem("zip-nameless", "it has no name")
        if escapes(info.filename):
            return _Problem("zip-traversal", "its name leaves the folder it would be installed to")
        if info.filename in seen:
            return _Problem("zip-duplicate", "another member has the same name")
        if info.header_offset < end or info.header_offset + _LOCAL.size + info.compress_size > directory:
            return _Problem("zip-overlap", "it overlaps another member or the directory")
        if stat.S_ISLNK(info.external_attr >> 16):
            return _Problem("zip-link", "it is a symbolic link, which wheels cannot hold")
        if info.flag_bits & _ENCRYPTED:
            return _Problem("zip-encrypted", "it is encrypted")
        if info.flag_bits & _PATCH:
            return _Problem("zip-method", "it is a patch of another file, which no installer applies")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return _Problem("zip-method", f"its compression method {info.compress_type} is not allowed in wheels")
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            return _Problem("zip-size", "it is stored uncompressed, but two different sizes are given")
        if info.file_size > max(_LARGE, _HIGHEST_RATIO * info.compress_size):
            return _Problem("zip-bomb", f"it claims {info.file_size:,} bytes in {info.compress_size:,}")
        return None


def escapes(name: str) -> bool:
    """Whether a name leads out, by its parts, on any system: a wheel made on one may be installed on another."""
    if ".." not in name and name[0] not in "/\\" and ":" not in name:
        return False  # nearly all, and a wheel has thousands
    parts = name.replace("\\", "/").split("/")
    return ".." in parts or not parts[0] or parts[0].endswith(":")


def _unsound(rule: str, problems: Sequence[str]) -> Finding:
    what = "a file in the wheel was" if len(problems) == 1 else f"{len(problems):,} files in the wheel were"
    return finding(
        rule,
        f"{what} not read: {problems[0]}",
        evidence=tuple(problems[1:_SHOWN]),
    )
