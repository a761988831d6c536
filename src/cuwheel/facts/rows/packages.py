"""Which library a package loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A file beside the libraries, and what it says and does not say in the releases that a profile is for."""

    file: str
    words: tuple[str, ...]
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What GPUs below a capability load: the library with `name` before its suffix."""

    below: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageProfile:
    """Which of its libraries a package loads: see packages.toml."""

    names: tuple[str, ...]
    loads: Literal["every", "one"]
    source: tuple[str, ...]
    since: str | None = None
    told_by: Sign | None = None
    pattern: str = ""
    follows: Literal["torch", "jax", "cudart"] | None = None
    picks: Literal["exact", "nearest"] | None = None
    override: str | None = None
    override_digits: bool = False
    override_keeps_variant: bool = True
    variant: Variant | None = None
    missing: str = ""
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemLibraries:
    """Patterns of what every Linux has."""

    libraries: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeBring:
    """What comes with some builds of a framework: of these releases, for this CUDA major."""

    brings: tuple[str, ...]
    since: str | None = None
    below: str | None = None
    cuda: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkLibraries:
    """Patterns of the libraries that only a framework's own package brings, and of CUDA's that come with it."""

    name: str
    source: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    only_with_extra: bool = False
    some: tuple[SomeBring, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """packages.toml."""

    sources: dict[str, Source]
    profile: tuple[PackageProfile, ...]
    system: SystemLibraries
    framework: tuple[FrameworkLibraries, ...]
