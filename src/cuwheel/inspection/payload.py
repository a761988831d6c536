"""The payload of an entry, decompressed under a hard ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel.inspection.buffer import Buffer
    from cuwheel.inspection.values import Compression

# The most seen is seventyfold; much more is a bomb.
_HIGHEST_RATIO = 256
_SMALL = 1 << 16
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
