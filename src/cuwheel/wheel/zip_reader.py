"""Members of a zip as buffers. Nothing is written to disk, and nothing a hostile zip declares is believed."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from cuwheel.errors import MalformedError, UnreadableError, UnsafeWheelError
from cuwheel.support.buffer import BufferFile, FileBuffer, MemoryBuffer, SliceBuffer
from cuwheel.support.finding import Finding
from cuwheel.wheel.inflate import InflatedBuffer, NoCapture, Packed, all_of, pieces, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.support.buffer import Buffer
    from cuwheel.wheel.inflate import Capture

IN_MEMORY = 1 << 24
TEXT_LIMIT = 1 << 26
_CHUNK = 1 << 20
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED, _UTF8 = 0x1, 0x800
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
            raise MalformedError(path, f"not a zip file that can be read: {error}") from error
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
        return start(packed, count) if count else b""

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
            return InflatedBuffer(packed, capture or NoCapture(), advance)
        advance(member.size)
        return MemoryBuffer(member.name, all_of(packed))

    def read(self, member: Member) -> bytes:
        """A member that is small enough to be held."""
        if member.size > TEXT_LIMIT:
            raise MalformedError(member.name, f"has {member.size:,} bytes, of at most {TEXT_LIMIT:,}")
        return b"".join(self.chunks(member))

    def chunks(self, member: Member) -> Iterator[bytes]:
        """The member's content, checked at its end against what the zip says of it."""
        packed = self._packed(member)
        if member.method != zipfile.ZIP_STORED:
            yield from pieces(packed)
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
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return _Problem("zip-method", f"its compression method {info.compress_type} is not allowed in wheels")
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            return _Problem("zip-size", "it is stored uncompressed, but two different sizes are given")
        if info.file_size > max(_LARGE, _HIGHEST_RATIO * info.compress_size):
            return _Problem("zip-bomb", f"it claims {info.file_size:,} bytes in {info.compress_size:,}")
        return None


def escapes(name: str) -> bool:
    """By its parts, on any system: a wheel made on one may be installed on another."""
    if ".." not in name and name[0] not in "/\\" and ":" not in name:
        return False  # nearly all, and a wheel has thousands
    parts = name.replace("\\", "/").split("/")
    return ".." in parts or not parts[0] or parts[0].endswith(":")


def _unsound(rule: str, problems: Sequence[str]) -> Finding:
    what = "a file in the wheel was" if len(problems) == 1 else f"{len(problems):,} files in the wheel were"
    return Finding(
        rule=rule,
        severity="error",
        message=f"{what} not read: {problems[0]}",
        evidence=tuple(problems[1:_SHOWN]),
        fix="do not install this wheel; download it again from its publisher",
    )
