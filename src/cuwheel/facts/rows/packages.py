"""CUDA libraries and the packages that bring them, what a package loads, manylinux, PyTorch."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from cuwheel_core.facts import versions
from cuwheel_core.facts.arch import Capability
from cuwheel_core.facts.rows.common import Source
from cuwheel_core.wheel.tags import normalised


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
    host: tuple[str, ...] = ()
    parts: tuple[PackagePart, ...] = ()


class PackageNeeds(Struct, frozen=True, kw_only=True):
    """What a release of a package needs, from `since` on: see packages.toml."""

    name: str
    since: str
    source: tuple[str, ...]
    called: tuple[str, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    capability: Capability | None = None
    windows: bool = True


class FilesForGpus(Struct, frozen=True, kw_only=True):
    """Files that some releases of a package use with some GPUs alone: `from_gpu` on, or below `below_gpu`.

    `nvidia`: false of those that no GPU of NVIDIA's uses.
    """

    name: str
    files: tuple[str, ...]
    since: str
    below: str
    source: tuple[str, ...]
    from_gpu: Capability | None = None
    below_gpu: Capability | None = None
    nvidia: bool = True

    def is_of(self, name: str, release: str | None) -> bool:
        """Whether it is about this release of this package."""
        if release is None or normalised(name) != self.name:
            return False
        return versions.at_least(release, self.since) and not versions.at_least(release, self.below)

    def covers(self, gpu: Capability) -> bool:
        if self.from_gpu and gpu < self.from_gpu:
            return False
        return self.nvidia and not (self.below_gpu and gpu >= self.below_gpu)


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
    needs: tuple[PackageNeeds, ...] = ()
    for_gpus: tuple[FilesForGpus, ...] = ()
    imported: tuple[ImportedAs, ...] = ()


# CUDA libraries and the packages that bring them.


# What manylinux tags promise.


class ManylinuxPolicy(Struct, frozen=True, kw_only=True):
    """From the tag of this glibc on: the newest symbol versions of libstdc++ that may be needed."""

    glibc: str
    glibcxx: str
    cxxabi: str
    source: tuple[str, ...]
    measured: bool = False


class Libstdcxx(Struct, frozen=True, kw_only=True):
    """The GCC whose libstdc++ first has these symbols."""

    glibcxx: str
    gcc: str
    source: tuple[str, ...]


class Manylinux(Struct, frozen=True, kw_only=True):
    """manylinux.toml."""

    sources: dict[str, Source]
    policy: tuple[ManylinuxPolicy, ...]
    libstdcxx: tuple[Libstdcxx, ...] = ()

    def policy_of(self, glibc: str) -> ManylinuxPolicy | None:
        """The promise of `manylinux_2_28` by its `2.28`; None below the oldest that there is."""
        reached = [row for row in self.policy if versions.at_least(glibc, row.glibc)]
        return reached[-1] if reached else None


# What TORCH_CUDA_ARCH_LIST takes.


class TorchChange(Struct, frozen=True, kw_only=True):
    """The architectures that a release of PyTorch took up, and those it no longer takes."""

    since: str
    adds: tuple[str, ...]
    source: tuple[str, ...]
    drops: tuple[str, ...] = ()


class TorchName(Struct, frozen=True, kw_only=True):
    """A name that TORCH_CUDA_ARCH_LIST takes, what it stands for, and in which releases."""

    name: str
    means: str
    source: tuple[str, ...]
    since: str | None = None
    below: str | None = None


class TorchIndex(Struct, frozen=True, kw_only=True):
    """PyTorch's own index: an address with `{channel}`, and the CUDA releases that have a channel, the oldest first."""

    address: str
    releases: tuple[str, ...]
    source: tuple[str, ...]


class Torch(Struct, frozen=True, kw_only=True):
    """torch.toml: what TORCH_CUDA_ARCH_LIST takes, and where builds for each CUDA are."""

    sources: dict[str, Source]
    checked: str
    index: TorchIndex
    change: tuple[TorchChange, ...]
    name: tuple[TorchName, ...]
