"""What the bytes of a file are for. The parts add up to its size, whatever the section table claims."""

from __future__ import annotations

import bisect
from collections import Counter
from typing import TYPE_CHECKING

from cuwheel.device_code.libraries import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.device_code.image import Role, Section
    from cuwheel.device_code.libraries import DeviceCode, PartName
    from cuwheel.facts.arch import Arch

_NAMES: dict[Role, PartName] = {
    "code": "host code",
    "data": "host data",
    "unwind": "host data",
    "device": "device code",
    "debug": "debug",
    "symbols": "symbols",
    "other": "other",
}


def measure(
    size: int, sections: Sequence[Section], rows: Sequence[DeviceCode], places: Iterable[tuple[int, int]]
) -> tuple[Part, ...]:
    """`places`: from and to of each container and cubin. What else stands in sections for device code is padding."""
    sizes: Counter[PartName] = Counter()
    position = 0
    for section in sorted(sections, key=lambda each: (each.offset, -each.size)):
        start, end = max(position, section.offset), min(section.offset + section.size, size)
        if end > start:  # what overlaps an earlier section was counted there
            sizes[_NAMES[section.role]] += end - start
            position = end
    padding = _padding(sizes["device code"], sections, places)
    sizes["device code"] -= padding
    by_arch: Counter[Arch] = Counter()
    for row in rows:
        by_arch[row.arch] += row.bytes
    code = sum(by_arch.values())
    sizes["other"] += size - sum(sizes.values())
    # Device code in other sections is device code all the same, and is taken from theirs.
    _move(sizes, code - sizes["device code"])
    parts = [Part(name="device code", arch=arch, bytes=count) for arch, count in by_arch.items()]
    sizes["device code"] -= code
    parts += [Part(name=name, arch=None, bytes=count) for name, count in sizes.items() if count > 0]
    return tuple(parts)


def _padding(total: int, sections: Sequence[Section], places: Iterable[tuple[int, int]]) -> int:
    """Bytes of the sections for device code that no container has."""
    device = sorted((each.offset, each.offset + each.size) for each in sections if each.role == "device")
    starts = [start for start, _ in device]
    inside = 0
    for start, end in places:
        index = bisect.bisect_right(starts, start) - 1
        if index >= 0 and start < device[index][1]:
            inside += min(end, device[index][1]) - start
    return max(total - inside, 0)


def _move(sizes: Counter[PartName], missing: int) -> None:
    for name in ("host data", "other", "symbols", "debug", "host code"):
        if missing <= 0:
            return
        taken = min(sizes[name], missing)
        sizes[name] -= taken
        sizes["device code"] += taken
        missing -= taken
