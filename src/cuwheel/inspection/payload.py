"""The payload of an entry, decompressed under a hard ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel.inspection.buffer import Buffer
    from cuwheel.inspection.fatbin import RawEntry
    from cuwheel.inspection.values import Compression

# Device code compresses up to a hundredfold; a thousandfold is a bomb.
_HIGHEST_RATIO = 1024
_SMALL = 1 << 20
LIMIT = 1 << 29


def read(buffer: Buffer, entry: RawEntry, compression: Compression) -> bytes:
    data = buffer.read(entry.payload_offset, entry.stored)
    if compression == "none":
        return data
    where = f"the entry at {entry.offset:#x}"
    if entry.real > LIMIT or entry.real > _SMALL + _HIGHEST_RATIO * len(data):
        raise MalformedError(buffer.name, f"{where} claims {entry.real:,} bytes in {len(data):,}")
    unpacked = _lz4(data, entry.real) if compression == "lz4" else _zstd(data, entry.real)
    if unpacked is None:
        raise MalformedError(buffer.name, f"{where} does not decompress to the {entry.real:,} bytes it claims")
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
