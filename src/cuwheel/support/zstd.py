"""ZSTD by the package `zstandard`, or by Python's own library where that is all there is: in a browser."""

from __future__ import annotations

_WIDEST_WINDOW = 27  # 128 MiB, as `zstd` itself accepts: a frame may ask for more memory than there is
_LEVEL = 3  # the default of `zstd` itself


def compressed(data: bytes, level: int = _LEVEL) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 - only where something is compressed with it
    except ImportError:
        from compression import zstd  # type: ignore[import-not-found]  # noqa: PLC0415 - Python 3.14

        return bytes(zstd.compress(data, level))
    return zstandard.ZstdCompressor(level=level).compress(data)


def first_bytes(data: bytes, most: int) -> bytes | None:
    """At most `most` bytes of what is in `data`, which may be cut short; nothing where it is no ZSTD.

    Read as a stream: a call for all of it would believe the size that a frame claims.
    """
    try:
        import zstandard  # noqa: PLC0415
    except ImportError:
        return _by_library(data, most)
    try:
        return zstandard.ZstdDecompressor(max_window_size=1 << _WIDEST_WINDOW).stream_reader(data).read(most)
    except (zstandard.ZstdError, ValueError, OverflowError, MemoryError):
        return None


def _by_library(data: bytes, most: int) -> bytes | None:
    from compression import zstd  # noqa: PLC0415 - Python 3.14

    options = {zstd.DecompressionParameter.window_log_max: _WIDEST_WINDOW}
    try:
        return bytes(zstd.ZstdDecompressor(options=options).decompress(data, most))
    except (zstd.ZstdError, ValueError, OverflowError, MemoryError):
        return None
