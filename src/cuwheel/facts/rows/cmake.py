"""What CMake takes."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeSpelling:
    """A kind of value of CMAKE_CUDA_ARCHITECTURES, and the releases that take it: see cmake.toml."""

    spelling: str
    since: str
    source: tuple[str, ...]
    backports: tuple[str, ...] = ()
    unchecked_before: str | None = None
    measured: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CMake:
    """cmake.toml."""

    sources: dict[str, Source]
    checked: str
    spelling: tuple[CMakeSpelling, ...]
