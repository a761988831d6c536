"""From which CMake on a spelling of CMAKE_CUDA_ARCHITECTURES is understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts import versions
from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.cmake import CMakeSpelling


def find_spelling(name: str) -> CMakeSpelling:
    """By its name in the table: `plain`, `native`, `a`, `f`, …"""
    known = {row.spelling: row for row in tables().cmake.spelling}
    if name not in known:
        raise UnknownNameError("spelling of CMAKE_CUDA_ARCHITECTURES", name, list(known))
    return known[name]


def takes(version: str, spelling: str) -> bool:
    """Whether a CMake release takes this kind of value."""
    row = find_spelling(spelling)
    if versions.at_least(version, row.since):
        return True
    if row.unchecked_before and not versions.at_least(version, row.unchecked_before):
        return True
    same = [each for each in row.backports if versions.minor(each) == versions.minor(version)]
    return any(versions.at_least(version, each) for each in same)
