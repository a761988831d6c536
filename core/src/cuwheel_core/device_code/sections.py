"""Named sections at addresses, which ELF and PE files have in common, and what the bytes of a file are for."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel_core.device_code.libraries import DeviceCode, Part, PartName

if TYPE_CHECKING:
    from cuwheel_core.facts.arch import Arch


Role: TypeAlias = Literal["code", "data", "device", "debug", "symbols", "unwind", "other"]

# Sections with fat binaries → whether what they hold is linked. PE cuts names at eight characters.
FATBIN_SECTIONS = {".nv_fatbin": True, ".nv_fatb": True, "__nv_relfatbin": False, "__nv_rel": False}
WRAPPER_SECTIONS = frozenset({".nvFatBinSegment", ".nvFatBi"})
MODULE_ID_SECTIONS = frozenset({"__nv_module_id", "__nv_mod"})
AMD_SECTIONS = frozenset({".hip_fatbin", ".hip_fat", ".hipFatBinSegment", ".hipFatB"})


class Section(Struct, frozen=True):
    number: int  # in the section table
    name: str
    role: Role
    address: int
    offset: int
    size: int  # in the file; 0 for what only takes memory


class Range(Struct, frozen=True):
    """Addresses that the file's bytes from `offset` on are loaded to."""

    address: int
    offset: int
    size: int


def disjoint(sections: Sequence[Section]) -> tuple[list[Section], list[Section]]:
    """The sections with bytes of their own, in the order of the file, and those that overlap them.

    What is searched is searched once: a thousand sections over the same bytes must not cost a thousand passes.
    """
    apart: list[Section] = []
    overlapping: list[Section] = []
    position = 0
    for section in sorted((each for each in sections if each.size), key=lambda each: each.offset):
        if section.offset < position:
            overlapping.append(section)
            continue
        apart.append(section)
        position = section.offset + section.size
    return apart, overlapping


class AddressMap:
    """From an address in memory to an offset in the file."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = sorted(ranges, key=lambda each: each.address)
        self._starts = [each.address for each in self._ranges]

    def offset_of(self, address: int) -> int | None:
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        found = self._ranges[index]
        within = address - found.address
        return found.offset + within if within < found.size else None


# What the bytes of a file are for. The parts add up to its size, whatever the section table claims.

_PART_NAMES: dict[Role, PartName] = {
    "code": "host code",
    "data": "host data",
    "unwind": "host data",
    "device": "device code",
    "debug": "debug",
    "symbols": "symbols",
    "other": "other",
}


def measure_parts(
    size: int, sections: Sequence[Section], rows: Sequence[DeviceCode], places: Iterable[tuple[int, int]]
) -> tuple[Part, ...]:
    """`places`: from and to of each container and cubin. What else stands in sections for device code is padding."""
    sizes: Counter[PartName] = Counter()
    position = 0
    for section in sorted(sections, key=lambda each: (each.offset, -each.size)):
        start, end = max(position, section.offset), min(section.offset + section.size, size)
        if end > start:  # what overlaps an earlier section was counted there
            sizes[_PART_NAMES[section.role]] += end - start
            position = end
    padding = _padding(sizes["device code"], sections, places)
    sizes["device code"] -= padding
    by_arch: Counter[Arch] = Counter()
    for row in rows:
        by_arch[row.arch] += row.bytes
    code = sum(by_arch.values())
    sizes["other"] += size - sum(sizes.values())
    # Device code in other sections is device code all the same, and is taken from theirs.
    _take_from_other_parts(sizes, code - sizes["device code"])
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


def _take_from_other_parts(sizes: Counter[PartName], missing: int) -> None:
    for name in ("host data", "other", "symbols", "debug", "host code"):
        if missing <= 0:
            return
        taken = min(sizes[name], missing)
        sizes[name] -= taken
        sizes["device code"] += taken
        missing -= taken
