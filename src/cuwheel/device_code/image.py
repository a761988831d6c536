"""What ELF and PE files have in common for those who look for device code: named sections at addresses."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Role: TypeAlias = Literal["code", "data", "device", "debug", "symbols", "unwind", "other"]

# Sections with fat binaries → whether what they hold is linked. PE cuts names at eight characters.
FATBIN_SECTIONS = {".nv_fatbin": True, ".nv_fatb": True, "__nv_relfatbin": False, "__nv_rel": False}
WRAPPER_SECTIONS = frozenset({".nvFatBinSegment", ".nvFatBi"})
MODULE_ID_SECTIONS = frozenset({"__nv_module_id", "__nv_mod"})
AMD_SECTIONS = frozenset({".hip_fatbin", ".hip_fat", ".hipFatBinSegment", ".hipFatB"})


class Section(NamedTuple):
    number: int  # in the section table
    name: str
    role: Role
    address: int
    offset: int
    size: int  # in the file; 0 for what only takes memory


class Range(NamedTuple):
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
