"""CUDA toolkits, the drivers that go with them, CMake, and the errors of CUDA."""

from __future__ import annotations

from functools import cache
from typing import Literal

from msgspec import Struct

from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.facts.rows.common import OperatingSystem, Source


class Drivers(Struct, frozen=True, kw_only=True):
    """A driver version on each system; None where it is not known."""

    linux: str | None = None
    windows: str | None = None
    source: tuple[str, ...] = ()

    def on(self, system: OperatingSystem) -> str | None:
        return self.linux if system == "linux" else self.windows


class HostCompilers(Struct, frozen=True, kw_only=True):
    """What `host_config.h` lets through; None where there is no limit or it is not known."""

    gcc_max: int | None = None
    clang_max: int | None = None
    clang_min: str | None = None
    msc_ver_min: int | None = None
    msc_ver_max: int | None = None

    def bounds(self, kind: str) -> tuple[str | None, str | None]:
        """The oldest and the newest that it takes of a kind: `("19.10", "19.49")`, `(None, "14")`."""
        if kind == "msvc":
            return _msvc(self.msc_ver_min), _msvc(self.msc_ver_max)
        most = self.gcc_max if kind == "gcc" else self.clang_max if kind == "clang" else None
        return None, None if most is None else str(most)

    def refusal(self, kind: str, version: str) -> Literal["", "too old", "too new"]:
        """How nvcc refuses a compiler; empty where it takes it, or where nobody knows."""
        least, most = self.bounds(kind)
        if most and _cut(version, most) > versions.key(most):
            return "too new"
        return "too old" if least and _cut(version, least) < versions.key(least) else ""

    def accepted(self, kind: str) -> str:
        """In words; empty where nobody knows."""
        least, most = self.bounds(kind)
        return "" if most is None else f"{least} to {most}" if least else f"up to {most}"


def _msvc(number: int | None) -> str | None:
    """_MSC_VER 1949 is the compiler that calls itself 19.49."""
    return None if number is None else f"{number // 100}.{number % 100}"


def _cut(version: str, bound: str) -> tuple[int, ...]:
    """The version with as many parts as the bound has: 14.2 is not later than 14."""
    return versions.key(version)[: len(versions.key(bound))]


class Release(Struct, frozen=True, kw_only=True):
    """A CUDA as far as drivers and code go by it; of old ones, which nobody builds with any more, that is all."""

    version: str
    ptx_isa: str
    driver: Drivers
    architectures: tuple[str, ...]
    source: tuple[str, ...]
    note: str = ""

    @property
    def major(self) -> int:
        return versions.major(self.version)

    @property
    def archs(self) -> tuple[Arch, ...]:
        """`architectures`, which are written as numbers, as machine code."""
        return _archs(self.architectures)

    def supports(self, arch: Arch) -> bool:
        """Whether nvcc of this toolkit compiles for it, be it machine code, PTX or LTO-IR."""
        return arch.number in self.architectures


@cache
def _archs(numbers: tuple[str, ...]) -> tuple[Arch, ...]:
    return tuple(map(Arch.parse, numbers))


class Toolkit(Release, frozen=True, kw_only=True):
    """A release that cuwheel builds with."""

    host_compilers: HostCompilers
    measured: bool = False
    measured_release: str | None = None


class MinorCompatibility(Drivers, frozen=True, kw_only=True):
    """The driver from which on every minor release of a major runs."""

    major: int
    note: str = ""


class ForwardCompatibility(Struct, frozen=True, kw_only=True):
    package: str
    products: tuple[str, ...]
    note: str
    source: tuple[str, ...]


class Joined(Struct, frozen=True, kw_only=True):
    """From when on a Tegra is served by the distribution for servers. `compat`: a package for older L4T."""

    capability: Capability
    cuda: str
    l4t: str
    jetpack: str
    source: tuple[str, ...]
    compat: str = ""
    note: str = ""


class Arm64(Struct, frozen=True, kw_only=True):
    """From when on servers and Jetson share one distribution, and since when each Tegra is part of it."""

    one_distribution_since: str
    joined: tuple[Joined, ...]
    source: tuple[str, ...]


class JetsonRelease(Struct, frozen=True, kw_only=True):
    """A release of L4T, the JetPack that it is part of, and the CUDA that its driver came for."""

    l4t: str
    jetpack: str
    cuda: str
    source: tuple[str, ...]
    note: str = ""


class JetPack(Struct, frozen=True, kw_only=True):
    """What its releases have in common. `l4t`: the first numbers of theirs. `capabilities`: of the boards."""

    version: str
    l4t: tuple[int, ...]
    system: str
    glibc: str
    capabilities: tuple[Capability, ...]
    source: tuple[str, ...]


class GlibcClash(Struct, frozen=True, kw_only=True):
    """Up to `last_broken`, CUDA's headers do not compile with this glibc or a later one."""

    glibc: str
    last_broken: str
    symbols: tuple[str, ...]
    source: tuple[str, ...]
    measured: bool = False


class Toolkits(Struct, frozen=True, kw_only=True):
    """toolkits.toml."""

    sources: dict[str, Source]
    checked: str
    earlier: tuple[Release, ...]
    toolkit: tuple[Toolkit, ...]
    minor_compatibility: tuple[MinorCompatibility, ...]
    zstd_fat_binaries: Drivers
    forward_compatibility: ForwardCompatibility
    arm64: Arm64
    jetpack: tuple[JetPack, ...]
    jetson: tuple[JetsonRelease, ...]
    glibc_clash: tuple[GlibcClash, ...]


# What CMake takes.


# CUDA's errors.
