"""Which library a package loads."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cuwheel.facts.arch import Capability
from cuwheel.facts.rows.common import Source


class Sign(Struct, frozen=True, kw_only=True):
    """A file beside the libraries, and what it says and does not say in the releases that a profile is for."""

    file: str
    words: tuple[str, ...]
    without: tuple[str, ...] = ()


class Variant(Struct, frozen=True, kw_only=True):
    """What GPUs below a capability load: the library with `name` before its suffix."""

    below: Capability
    name: str


class PackagePart(Struct, frozen=True, kw_only=True):
    """Libraries by a pattern, and what they are for. `main`: what most people take the package for."""

    library: str
    does: str
    main: bool = False


class PackageProfile(Struct, frozen=True, kw_only=True):
    """Which of its libraries a package loads: see packages.toml."""

    names: tuple[str, ...]
    loads: Literal["every", "one"]
    source: tuple[str, ...]
    since: str | None = None
    recognised_by: Sign | None = None
    pattern: str = ""
    follows: Literal["torch", "jax", "cudart"] | None = None
    picks: Literal["exact", "nearest"] | None = None
    override: str | None = None
    override_digits: bool = False
    override_keeps_variant: bool = True
    variant: Variant | None = None
    missing: str = ""
    optional: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    parts: tuple[PackagePart, ...] = ()


class SystemLibraries(Struct, frozen=True, kw_only=True):
    """Patterns of what every Linux has."""

    libraries: tuple[str, ...]
    source: tuple[str, ...]


class SomeBring(Struct, frozen=True, kw_only=True):
    """What comes with some builds of a framework: of these releases, for this CUDA major."""

    brings: tuple[str, ...]
    since: str | None = None
    below: str | None = None
    cuda: int | None = None


class FrameworkLibraries(Struct, frozen=True, kw_only=True):
    """Patterns of the libraries that only a framework's own package brings, and of CUDA's that come with it."""

    name: str
    source: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    only_with_extra: bool = False
    some: tuple[SomeBring, ...] = ()


class CpuDistribution(Struct, frozen=True, kw_only=True):
    """The package for the CPU, of packages whose wheels are for GPUs."""

    names: tuple[str, ...]
    distribution: str
    source: tuple[str, ...]


class ImportedAs(Struct, frozen=True, kw_only=True):
    """The distribution that brings a module of another name, with its bound; empty where Python itself had it once."""

    module: str
    distribution: str
    source: tuple[str, ...]


class Packages(Struct, frozen=True, kw_only=True):
    """packages.toml."""

    sources: dict[str, Source]
    profile: tuple[PackageProfile, ...]
    system: SystemLibraries
    framework: tuple[FrameworkLibraries, ...]
    cpu: tuple[CpuDistribution, ...] = ()
    imported: tuple[ImportedAs, ...] = ()
