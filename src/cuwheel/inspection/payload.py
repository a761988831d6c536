"""The payload of an entry, decompressed under a hard ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel.buffer import Buffer
    from cuwheel.inspection.libraries import Compression

# The most seen is seventyfold; much more is a bomb.
_HIGHEST_RATIO = 256
_SMALL = 1 << 16
_START = 512
_ZSTD_BLOCK = (1 << 17) + 32  # the most that one takes with the headers before it: it is decoded as a whole
LIMIT = 1 << 29


def read(buffer: Buffer, offset: int, stored: int, real: int, compression: Compression) -> bytes:
    """What the `stored` bytes at `offset` hold: `real` bytes, or the file is malformed."""
    if stored > LIMIT or real > LIMIT or real > _SMALL + _HIGHEST_RATIO * stored:
        raise MalformedError(buffer.name, f"device code at {offset:#x} claims {real:,} bytes in {stored:,}")
    data = buffer.read(offset, stored)
    if compression == "none":
        return data
    unpacked = _lz4(data, real) if compression == "lz4" else _zstd(data, real)
    if unpacked is None:
        raise MalformedError(
            buffer.name, f"device code at {offset:#x} does not decompress to the {real:,} bytes it claims"
        )
    return unpacked


def start(buffer: Buffer, offset: int, stored: int, compression: Compression) -> bytes:
    """The first bytes of the payload, a few hundred if it has them; nothing where they cannot be read."""
    data = buffer.read(offset, min(stored, _ZSTD_BLOCK if compression == "zstd" else _START))
    if compression == "none":
        return data
    return _lz4_start(data) if compression == "lz4" else _zstd_start(data)


def _lz4_start(data: bytes) -> bytes:
    """The library decodes whole blocks only, and some are megabytes."""
    out = bytearray()
    at = 0
    try:
        while len(out) < _START:
            token = data[at]
            literals, at = _lz4_length(data, at + 1, token >> 4)
            out += data[at : at + literals]
            at += literals
            back = int.from_bytes(data[at : at + 2], "little")
            if back == 0:  # the last literals, behind which nothing stands; anywhere else it would be damage
                break
            count, at = _lz4_length(data, at + 2, token & 15)
            for _ in range(min(count + 4, _START)):
                out.append(out[-back])
    except IndexError:  # the bytes that were read end here
        pass
    return bytes(out)


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    """A length that starts with four bits, and where it ends."""
    if length < 15:  # noqa: PLR2004 - all four are set where more follows
        return length, at
    while data[at] == 255:  # noqa: PLR2004
        length, at = length + 255, at + 1
    return length + data[at], at + 1


def _zstd_start(data: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 - only where something is compressed with it

    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(_START)
    except (zstandard.ZstdError, ValueError, MemoryError):
        return b""


def _lz4(data: bytes, size: int) -> bytes | None:
    import lz4.block  # noqa: PLC0415 - only where something is compressed with it

    try:
        unpacked: bytes = lz4.block.decompress(data, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError):
        return None
    return unpacked if len(unpacked) == size else None


def _zstd(data: bytes, size: int) -> bytes | None:
    import zstandard  # noqa: PLC0415 - only where something is compressed with it

    try:
        # A stream, because the one-call function believes the size that stands in the frame.
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        unpacked = reader.read(size + 1)
    except (zstandard.ZstdError, ValueError, OverflowError, MemoryError):
        return None
    return unpacked if len(unpacked) == size else None
