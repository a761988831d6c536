"""Deflated zip members as buffers: small ones in memory, large ones inflated once and then read in place.

The one pass over a large member leaves checkpoints, copies of the decompressor every few megabytes,
and any later read inflates from the nearest, as far as it must. Its start and its end, where tables are, and what a
listener asks for stay in memory, up to a few megabytes. So a library of 456 MB costs some twenty.
"""

from __future__ import annotations

import bisect
import functools
import importlib
import zlib
from typing import TYPE_CHECKING, Protocol

from cuwheel.errors import MalformedError
from cuwheel.support.buffer import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from cuwheel.support.buffer import Buffer

# Measured: with these zlib is 12 % faster than with four times as much, its output staying in the cache.
_INPUT = 1 << 16
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


def start(packed: Packed, count: int) -> bytes:
    """The first bytes, for recognising what it is."""
    try:
        return next(_stream(packed, _decompressor(), 0, b"", count), (b"", 0, b""))[0]
    except _engine().error as error:
        raise packed.damaged(f"does not inflate: {error}") from error


def pieces(packed: Packed) -> Iterator[bytes]:
    """The whole member, piece by piece, checked at its end."""
    return (chunk for chunk, *_ in _checked(packed, _decompressor()))


def all_of(packed: Packed) -> bytes:
    """The whole member, in memory."""
    return b"".join(pieces(packed))


class Capture(Protocol):
    """Hears every byte of the first pass, and keeps what readers will come back for, by its offset."""

    pieces: dict[int, bytes]

    def feed(self, offset: int, chunk: bytes) -> bool:
        """Whether all of it should be kept."""


class NoCapture:
    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}

    def feed(self, offset: int, chunk: bytes) -> bool:
        del offset, chunk
        return False


class InflatedBuffer:
    """A large member. `advance` is called for every byte that the first pass reads."""

    def __init__(self, packed: Packed, capture: Capture, advance: Callable[[int], None]) -> None:
        self.name, self.size = packed.name, packed.size
        self._packed = packed
        self._offsets: list[int] = []
        self._checkpoints: list[tuple[zlib._Decompress, int, bytes]] = []
        self._segments: dict[int, _Segment] = {}  # the one that was read last is last
        self._kept_offsets: list[int] = []
        self._kept: list[bytes] = []
        self._pieces = capture.pieces
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

    def _first_pass(self, capture: Capture, advance: Callable[[int], None]) -> None:
        inflater = _decompressor()
        self._remember(inflater, 0, 0, b"")
        position, room = 0, _ASKED_FOR
        for chunk, consumed, tail in _checked(self._packed, inflater):
            asked = capture.feed(position, chunk) and room >= len(chunk)
            following = position + len(chunk)
            if asked or position < _START or following > self.size - _END:
                self._kept_offsets.append(position)
                self._kept.append(chunk)
                room -= len(chunk) if asked else 0
            position = following
            advance(len(chunk))
            if position - self._offsets[-1] >= _SPACING and not inflater.eof:
                self._remember(inflater, position, consumed, tail)

    def _remember(self, inflater: zlib._Decompress, position: int, consumed: int, tail: bytes) -> None:
        self._offsets.append(position)
        self._checkpoints.append((inflater.copy(), consumed, tail))

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
            inflater, consumed, tail = self._checkpoints[index]
            end = self._offsets[index + 1] if index + 1 < len(self._offsets) else self.size
            stream = _stream(self._packed, inflater.copy(), consumed, tail, _OUTPUT)
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

    def __init__(self, size: int, stream: Iterator[tuple[bytes, int, bytes]]) -> None:
        self._size, self._stream = size, stream
        self._data = bytearray()

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self._size)
        while len(self._data) < stop and (found := next(self._stream, None)):
            self._data += found[0]
        return bytes(memoryview(self._data)[start:stop])


def _checked(packed: Packed, inflater: zlib._Decompress) -> Iterator[tuple[bytes, int, bytes]]:
    """Inflate all of it; it must have the size and the checksum that the zip declares, and no more."""
    have = checksum = 0
    crc32 = _engine().crc32
    try:
        for chunk, consumed, tail in _stream(packed, inflater, 0, b"", _OUTPUT):
            have += len(chunk)
            if have > packed.size:
                raise packed.damaged(f"inflates to more than the {packed.size:,} bytes that the zip declares")
            checksum = crc32(chunk, checksum)
            yield chunk, consumed, tail
    except _engine().error as error:
        raise packed.damaged(f"does not inflate: {error}") from error
    if have != packed.size:
        raise packed.damaged(f"inflates to {have:,} bytes, and the zip declares {packed.size:,}")
    if checksum != packed.crc:
        raise packed.damaged("its checksum is wrong")


def _stream(
    packed: Packed, inflater: zlib._Decompress, consumed: int, tail: bytes, most: int
) -> Iterator[tuple[bytes, int, bytes]]:
    """Pieces of at most `most` bytes, each with where the input stands behind it."""
    while not inflater.eof:
        if not tail:
            wanted = min(_INPUT, packed.stored - consumed)
            if not wanted:
                return
            tail = packed.source.read(packed.offset + consumed, wanted)
            consumed += wanted
        chunk = inflater.decompress(tail, most)
        tail = inflater.unconsumed_tail
        if chunk:
            yield chunk, consumed, tail
