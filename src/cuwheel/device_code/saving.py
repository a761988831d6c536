"""What compressing device code would save, estimated from a sample: compressing all of it takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.support import zstd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.fatbin import RawEntry, Walk
    from cuwheel.device_code.libraries import DeviceCode

_WORTH_IT = 1 << 20
_SAMPLES = 8
_SAMPLE_SIZE = 1 << 18


def estimated(walk: Walk, rows: Sequence[DeviceCode]) -> tuple[DeviceCode, ...]:
    """`rows` with `saving` where their entries are stored raw and there is enough of them to matter."""
    raw = {index for index, row in enumerate(rows) if row.compression == "none"}
    if sum(rows[index].bytes for index in raw) < _WORTH_IT:
        return tuple(rows)
    entries = [entry for container in walk.containers for entry in container.entries if entry.row in raw]
    ratio = _ratio(walk, sorted(entries, key=lambda entry: -entry.payload)[:_SAMPLES])
    return tuple(
        replace(row, saving=int(row.real_bytes * (1 - ratio))) if index in raw else row
        for index, row in enumerate(rows)
    )


def _ratio(walk: Walk, entries: Sequence[RawEntry]) -> float:
    before = after = 0
    for entry in entries:
        length = min(entry.payload, _SAMPLE_SIZE)
        middle = (entry.payload - length) // 2  # the ends are tables, which compress better than code
        sample = walk.buffer.read(entry.payload_offset + middle, length)
        before += len(sample)
        after += len(zstd.compressed(sample))
    return min(after / before, 1.0) if before else 1.0
