"""Fat binaries put together by hand: entries of real compilers, in containers that no compiler would write.

Headers are copied as they are and only the fields change that must: a PTX entry whose options offset was 0
crashed the driver.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lz4.block
import zstandard

from cuwheel_core.device_code.fatbin import CONTAINER, ENTRY, FLAG_LZ4, FLAG_ZSTD, MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel_core.device_code.libraries import Compression

_ALIGNMENT = 8
_FLAGS: dict[Compression, int] = {"none": 0, "lz4": FLAG_LZ4, "zstd": FLAG_ZSTD}
# Places of fields in an entry's header.
_PAYLOAD, _COMPRESSED, _ISA, _FLAG_BITS, _REAL = 0x08, 0x10, 0x18, 0x28, 0x38


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry as it stands in a file: header and payload, padding included."""

    header: bytes
    payload: bytes

    @property
    def stored(self) -> bytes:
        return self.header + self.payload

    def with_isa(self, isa: str) -> Entry:
        """Another PTX ISA in the header; the PTX itself keeps its `.version`."""
        major, minor = map(int, isa.split("."))
        return replace(self, header=_patched(self.header, _ISA, "<HH", minor, major))

    def packed(self, how: Compression) -> Entry:
        """The same code, compressed otherwise."""
        real = self._unpacked()
        stored = real if how == "none" else _lz4(real) if how == "lz4" else zstandard.ZstdCompressor().compress(real)
        (flags,) = struct.unpack_from("<Q", self.header, _FLAG_BITS)
        flags = flags & ~(FLAG_LZ4 | FLAG_ZSTD) | _FLAGS[how]
        payload = stored + bytes(-len(stored) % _ALIGNMENT)
        header = _patched(self.header, _PAYLOAD, "<Q", len(payload))
        header = _patched(header, _COMPRESSED, "<I", 0 if how == "none" else len(stored))
        header = _patched(header, _FLAG_BITS, "<Q", flags)
        header = _patched(header, _REAL, "<Q", 0 if how == "none" else len(real))
        return Entry(header=header, payload=payload)

    def _unpacked(self) -> bytes:
        fields = ENTRY.unpack_from(self.header)
        compressed, flags, real = fields[4], fields[11], fields[13]
        if not compressed:
            return self.payload
        data = self.payload[:compressed]
        if flags & FLAG_ZSTD:
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=real)
        unpacked: bytes = lz4.block.decompress(data, uncompressed_size=real)
        return unpacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a container stands in a library, and how much room there is for another."""

    offset: int
    size: int


def entries(container: bytes) -> tuple[Entry, ...]:
    """The entries of a container that a compiler wrote."""
    magic, _, header, size = CONTAINER.unpack_from(container)
    if magic != int.from_bytes(MAGIC, "little") or header + size > len(container):
        raise ValueError("this is not a whole container")
    found, at = [], header
    while at < header + size:
        _, _, head, payload, *_ = ENTRY.unpack_from(container, at)
        found.append(
            Entry(header=container[at : at + head], payload=container[at + head : at + head + payload]),
        )
        at += head + payload
    return tuple(found)


def container(parts: Sequence[Entry]) -> bytes:
    """A container of these entries, in this order; of none at all too."""
    body = b"".join(each.stored for each in parts)
    return CONTAINER.pack(int.from_bytes(MAGIC, "little"), 1, CONTAINER.size, len(body)) + body


def transplant(library: bytes, contents: Sequence[tuple[Site, Sequence[Entry]]]) -> bytes:
    """The library with other containers in the places of its own: all addresses stay, zeros fill the rest."""
    data = bytearray(library)
    for site, parts in contents:
        made = container(parts)
        if len(made) > site.size:
            raise ValueError(f"{len(made):,} bytes do not fit where {site.size:,} were")
        data[site.offset : site.offset + site.size] = made + bytes(site.size - len(made))
    return bytes(data)


def _patched(header: bytes, at: int, form: str, *values: int) -> bytes:
    changed = bytearray(header)
    struct.pack_into(form, changed, at, *values)
    return bytes(changed)


def _lz4(data: bytes) -> bytes:
    packed: bytes = lz4.block.compress(data, mode="high_compression", store_size=False)
    return packed
