"""What CMake takes."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class CMakeSpelling(Struct, frozen=True, kw_only=True):
    """A kind of value of CMAKE_CUDA_ARCHITECTURES, and the releases that take it: see cmake.toml."""

    spelling: str
    since: str
    source: tuple[str, ...]
    backports: tuple[str, ...] = ()
    unchecked_before: str | None = None
    measured: bool = False
    note: str = ""


class CMake(Struct, frozen=True, kw_only=True):
    """cmake.toml."""

    sources: dict[str, Source]
    checked: str
    spelling: tuple[CMakeSpelling, ...]
