"""What relocatable objects bring and want, by name: where only some of them fit a GPU, it decides what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import MalformedError
from cuwheel.inspection import cubin, limits, payload
from cuwheel.inspection.image import FATBIN_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.inspection.fatbin import RawEntry, Walk
    from cuwheel.inspection.libraries import DeviceCode, Symbols

_LIMIT = 1 << 28  # decompressed for it, at most; of the objects behind that no name is known


def symbols(walk: Walk, rows: Sequence[DeviceCode]) -> dict[int, Symbols]:
    """By container. Nothing where all objects were compiled for the same: then every one fits a GPU, or none does."""
    found: dict[int, Symbols] = {}
    objects = {
        index: each.entries for index, each in enumerate(walk.containers) if FATBIN_SECTIONS.get(each.section) is False
    }
    if len({compiled_for(entries, rows) for entries in objects.values()}) <= 1:
        return found
    budget = _LIMIT
    for index, entries in objects.items():
        smallest = least_to_read(entries, rows)
        if smallest is None:
            continue
        if smallest.real > budget:
            limits.met(f"{_LIMIT:,} bytes of relocatable objects", "the names in the rest were not read")
            continue
        budget -= smallest.real
        if read := names(walk, smallest, rows[smallest.row]):
            found[index] = read
    return found


def least_to_read(entries: Sequence[RawEntry], rows: Sequence[DeviceCode]) -> RawEntry | None:
    """The smallest cubin, of which one table is read; else the smallest PTX, of which every line is."""
    readable = [entry for entry in entries if rows[entry.row].kind in ("cubin", "ptx")]
    return min(readable, key=lambda entry: (rows[entry.row].kind == "ptx", entry.real), default=None)


def compiled_for(entries: Sequence[RawEntry], rows: Sequence[DeviceCode]) -> frozenset[tuple[str, str | None]]:
    """What decides which GPUs and drivers can use the entries of a container."""
    return frozenset((rows[entry.row].arch, rows[entry.row].ptx_isa) for entry in entries)


def names(walk: Walk, entry: RawEntry, row: DeviceCode) -> Symbols | None:
    """Those in a cubin or in PTX; None where it cannot be read."""
    try:
        data = payload.read(walk.buffer, entry.payload_offset, entry.stored, entry.real, row.compression)
        if row.kind == "ptx":
            return cubin.ptx_symbols(data)
        found = cubin.read(walk.buffer.name, data)
        return found.symbols() if found.has_symbols else None
    except MalformedError:  # told where the toolkits are read
        return None
