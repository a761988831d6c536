"""The one way to read: anything with a size and bytes at an offset, checked against its bounds."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import opening

SCAN_CHUNK = 1 << 16  # stays in the cache while it is searched, and is allocated without new pages
STRING_CHUNK = 256
_SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)  # Windows has none
STRING_LIMIT = 1 << 20  # search paths and names of templates reach tens of thousands of bytes
_RARE = 512  # rarer than once in so many bytes


class OutOfBoundsError(MalformedError):
    """The file points outside itself: it is damaged or was cut short."""

    def __init__(self, name: str, offset: int, wanted: int, size: int) -> None:
        super().__init__(name, f"cut short or damaged: expected {wanted:,} bytes at {offset:#x} of {size:,}")


class Buffer(Protocol):
    @property
    def name(self) -> str:
        """What a person calls it: the path, for messages."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes, or OutOfBoundsError."""

    def close(self) -> None: ...


def check(buffer: Buffer, offset: int, count: int) -> None:
    if offset < 0 or count < 0 or offset + count > buffer.size:
        raise OutOfBoundsError(buffer.name, offset, count, buffer.size)


class MemoryBuffer:
    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.size, self._data = name, len(data), data

    def read(self, offset: int, count: int) -> bytes:
        check(self, offset, count)
        return self._data[offset : offset + count]

    def close(self) -> None:
        pass


class FileBuffer:
    """A file, read in place. Not mapped: a file that shrinks meanwhile must not kill the process."""

    def __init__(self, path: Path, name: str = "") -> None:
        self.name = name or str(path)
        try:
            self._file = path.open("rb", buffering=0)
            self._fd = self._file.fileno()
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            raise UnreadableError.from_os(error, path) from error

    def read(self, offset: int, count: int) -> bytes:
        if offset < 0 or count < 0 or offset + count > self.size:  # in line: the walk calls this most
            raise OutOfBoundsError(self.name, offset, count, self.size)
        try:
            data = opening.read_at(self._fd, count, offset)
        except OSError as error:
            raise UnreadableError.from_os(error, self.name) from error
        if len(data) != count:  # it was cut while we read, or the system reads less at a time
            pieces = [data]
            have = len(data)
            while have < count:
                piece = opening.read_at(self._fd, count - have, offset + have)
                if not piece:
                    raise OutOfBoundsError(self.name, offset, count, offset + have)
                pieces.append(piece)
                have += len(piece)
            data = b"".join(pieces)
        return data

    def stored_from(self, position: int) -> int:
        """Where something is stored from `position` on: a sparse file may have gigabytes of zeros on no disk."""
        try:
            return os.lseek(self._fd, position, _SEEK_DATA) if _SEEK_DATA is not None else position
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else position

    clean_until = stored_from  # nothing that is searched for is made of zeros

    def close(self) -> None:
        self._file.close()


class SliceBuffer:
    """A part of another buffer that is a file of its own: a stored zip member, an archive's member."""

    def __init__(self, parent: Buffer, offset: int, size: int, name: str) -> None:
        check(parent, offset, size)
        self.name, self.size = name, size
        self._parent, self._offset = parent, offset

    def read(self, offset: int, count: int) -> bytes:
        check(self, offset, count)
        return self._parent.read(self._offset + offset, count)

    def close(self) -> None:
        pass  # the parent is somebody else's


class BufferFile(io.RawIOBase):
    """A buffer for those who want a file: `zipfile`."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer, self._position = buffer, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._buffer.size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        rest = max(self._buffer.size - self._position, 0)
        count = rest if size < 0 else min(size, rest)
        data = self._buffer.read(self._position, count)
        self._position += count
        return data


def find(buffer: Buffer, needle: bytes, start: int, end: int) -> Iterator[int]:
    """Every offset in [start, end) where `needle` begins and fits."""
    overlap = len(needle) - 1
    position = start
    while position + overlap < end:
        chunk = buffer.read(position, min(SCAN_CHUNK + overlap, end - position))
        at = chunk.find(needle)
        while at >= 0:
            yield position + at
            at = chunk.find(needle, at + 1)
        position += SCAN_CHUNK


def occurrences(data: bytes, needle: bytes, rare: int, start: int = 0) -> Iterator[int]:
    """Where `needle` begins in `data`, from `start` on.

    Its byte `rare` is searched for: one byte is found ten times faster. Where that byte is not rare at
    all, the search goes on for the whole needle.
    """
    byte = needle[rare : rare + 1]
    at = data.find(byte, start + rare)
    for _ in range(len(data) // _RARE):
        if at < 0:
            return
        if data.startswith(needle, at - rare):
            yield at - rare
        at = data.find(byte, at + 1)
    # In compressed data, where no byte is rare, a regular expression is the fastest way.
    pattern = re.compile(re.escape(needle))
    found = pattern.search(data, at - rare) if at >= 0 else None
    while found:
        yield found.start()
        found = pattern.search(data, found.start() + 1)


def string_at(buffer: Buffer, offset: int, end: int) -> str:
    """The zero-ended text at `offset`, ended too by `end`. A name beyond any real one is refused."""
    stop = min(end, offset + STRING_LIMIT, buffer.size)
    pieces = []
    while offset < stop:
        chunk = buffer.read(offset, min(STRING_CHUNK, stop - offset))
        cut = chunk.find(b"\0")
        if cut >= 0:
            pieces.append(chunk[:cut])
            break
        pieces.append(chunk)
        offset += len(chunk)
        if offset == stop < min(end, buffer.size):
            raise MalformedError(buffer.name, f"it has a name longer than {STRING_LIMIT:,} bytes")
    return b"".join(pieces).decode("utf-8", "replace")


# ZSTD by the package `zstandard`, or by Python's own library where that is all there is: in a browser.

_WIDEST_WINDOW = 27  # 128 MiB, as `zstd` itself accepts: a frame may ask for more memory than there is
_LEVEL = 3  # the default of `zstd` itself


def zstd_compressed(data: bytes, level: int = _LEVEL) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 - only where something is compressed with it
    except ImportError:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415 - Python 3.14

        return bytes(zstd.compress(data, level))
    return zstandard.ZstdCompressor(level=level).compress(data)


def zstd_first_bytes(data: bytes, most: int) -> bytes | None:
    """At most `most` bytes of what is in `data`, which may be cut short; nothing where it is no ZSTD.

    Read as a stream: a call for all of it would believe the size that a frame claims.
    """
    try:
        import zstandard  # noqa: PLC0415
    except ImportError:
        from compression import zstd  # noqa: PLC0415 - Python 3.14

        options = {zstd.DecompressionParameter.window_log_max: _WIDEST_WINDOW}
        try:
            return bytes(zstd.ZstdDecompressor(options=options).decompress(data, most))
        except (zstd.ZstdError, ValueError, OverflowError, MemoryError):
            return None
    try:
        return zstandard.ZstdDecompressor(max_window_size=1 << _WIDEST_WINDOW).stream_reader(data).read(most)
    except (zstandard.ZstdError, ValueError, OverflowError, MemoryError):
        return None
