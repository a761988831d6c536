"""The payload of an entry, decompressed under a hard ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError
from cuwheel.support import zstd

if TYPE_CHECKING:
    from cuwheel.device_code.libraries import Compression
    from cuwheel.support.buffer import Buffer

# The most seen is seventyfold; much more is a bomb.
_HIGHEST_RATIO = 256
_SMALL = 1 << 16
_START = 512
_ZSTD_BLOCK = (1 << 17) + 32  # the most that one takes with the headers before it: it is decoded as a whole
LIMIT = 1 << 29
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_HEADER = 18  # the most that one takes
_RAW_BLOCK, _REPEATED, _COMPRESSED = 0, 1, 2


def read(buffer: Buffer, offset: int, stored: int, real: int, compression: Compression) -> bytes:
    """What the `stored` bytes at `offset` hold: `real` bytes, or the file is malformed."""
    if stored > LIMIT or real > LIMIT or real > _SMALL + _HIGHEST_RATIO * stored:
        raise MalformedError(buffer.name, f"device code at {offset:#x} claims {real:,} bytes in {stored:,}")
    data = buffer.read(offset, stored)
    if compression == "none":
        return data
    unpacked = _lz4(data, real) if compression == "lz4" else zstd.first_bytes(data, real + 1)
    if unpacked is None or len(unpacked) != real:
        raise MalformedError(
            buffer.name, f"device code at {offset:#x} does not decompress to the {real:,} bytes it claims"
        )
    return unpacked


def start(buffer: Buffer, offset: int, stored: int, compression: Compression) -> bytes:
    """The first bytes of the payload, a few hundred if it has them; nothing where they cannot be read."""
    data = buffer.read(offset, start_size(stored, compression))
    if compression == "none":
        return data
    return _lz4_start(data) if compression == "lz4" else zstd.first_bytes(data, _START) or b""


def start_size(stored: int, compression: Compression) -> int:
    """How much of a payload `start` reads."""
    return min(stored, _ZSTD_BLOCK if compression == "zstd" else _START)


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


def _lz4_start(data: bytes) -> bytes:
    """The library decodes whole blocks only, and some are megabytes."""
    return _lz4_decoded(data, _START)


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
