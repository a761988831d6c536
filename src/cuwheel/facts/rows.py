"""The rows of the tables as frozen values. What each key means is written at the top of its file in `data/`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from cuwheel.facts import versions

if TYPE_CHECKING:
    from cuwheel.facts.arch import Arch

OperatingSystem = Literal["linux", "windows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a row comes from."""

    title: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """A driver version on each system; None where it is not known."""

    linux: str | None = None
    windows: str | None = None
    source: tuple[str, ...] = ()

    def on(self, system: OperatingSystem) -> str | None:
        return self.linux if system == "linux" else self.windows


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCompilers:
    """What `host_config.h` lets through; None where there is no limit or it is not known."""

    gcc_max: int | None = None
    clang_max: int | None = None
    clang_min: str | None = None
    msc_ver_min: int | None = None
    msc_ver_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    version: str
    ptx_isa: str
    driver: Drivers
    host_compilers: HostCompilers
    architectures: tuple[str, ...]
    source: tuple[str, ...]
    measured: bool = False
    measured_release: str | None = None
    note: str = ""

    @property
    def major(self) -> int:
        return versions.major(self.version)

    def supports(self, arch: Arch) -> bool:
        """Whether nvcc of this toolkit compiles for it, be it machine code, PTX or LTO-IR."""
        return arch.number in self.architectures


@dataclass(frozen=True, slots=True, kw_only=True)
class MinorCompatibility(Drivers):
    """The driver from which on every minor release of a major runs."""

    major: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCompatibility:
    package: str
    products: tuple[str, ...]
    note: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm64:
    """From when on servers and Jetson share one distribution, and the Tegra capabilities where that is confirmed."""

    one_distribution_since: str
    confirmed_on: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlibcClash:
    """Up to `last_broken`, CUDA's headers do not compile with this glibc or a later one."""

    glibc: str
    last_broken: str
    symbols: tuple[str, ...]
    source: tuple[str, ...]
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkits:
    """toolkits.toml."""

    sources: dict[str, Source]
    toolkit: tuple[Toolkit, ...]
    minor_compatibility: tuple[MinorCompatibility, ...]
    zstd_fat_binaries: Drivers
    forward_compatibility: ForwardCompatibility
    arm64: Arm64
    glibc_clash: tuple[GlibcClash, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A capability: its generation, and the capabilities that its `f` code serves."""

    capability: str
    generation: str
    source: tuple[str, ...]
    tegra: bool = False
    family: tuple[str, ...] = ()
    renamed_to: str | None = None
    desktop_code: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures:
    """architectures.toml."""

    sources: dict[str, Source]
    architecture: tuple[Architecture, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGroup:
    """GPUs of one capability and product line. `tegra`: the chip that a Jetson's device tree names."""

    capability: str
    product: str
    names: tuple[str, ...]
    source: tuple[str, ...]
    tegra: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousName:
    name: str
    meanings: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """How a name is read: see above `[normalisation]` in gpus.toml."""

    ignore: tuple[str, ...]
    brands: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """gpus.toml."""

    sources: dict[str, Source]
    normalisation: Normalisation
    group: tuple[GpuGroup, ...]
    aliases: dict[str, str] = field(default_factory=dict)
    ambiguous: tuple[AmbiguousName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An index package (or the driver), and the libraries it puts into `folder` of site-packages."""

    name: str
    sonames: tuple[str, ...]
    source: tuple[str, ...]
    cuda: int | None = None
    folder: str = ""
    dlls: tuple[str, ...] = ()
    dll_folder: str = ""
    measured_release: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """libraries.toml. `chooses_kernels_itself`: patterns of the components that do."""

    sources: dict[str, Source]
    chooses_kernels_itself: tuple[str, ...]
    package: tuple[Package, ...]


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
    spelling: tuple[CMakeSpelling, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchName:
    """A name that TORCH_CUDA_ARCH_LIST takes, and what it stands for."""

    name: str
    means: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """torch.toml: what TORCH_CUDA_ARCH_LIST takes."""

    sources: dict[str, Source]
    architectures: tuple[str, ...]
    name: tuple[TorchName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageProfile:
    """Which of its libraries a package loads: see packages.toml."""

    names: tuple[str, ...]
    loads: Literal["every", "one"]
    source: tuple[str, ...]
    pattern: str = ""
    follows: Literal["torch", "jax"] | None = None
    override: str | None = None
    missing: str = ""
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemLibraries:
    """Patterns of what every Linux has."""

    libraries: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkLibraries:
    """Patterns of the libraries that only a framework's own package brings, and of CUDA's that come with it."""

    name: str
    source: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    only_with_extra: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """packages.toml."""

    sources: dict[str, Source]
    profile: tuple[PackageProfile, ...]
    system: SystemLibraries
    framework: tuple[FrameworkLibraries, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A part of a toolkit, or a library beside it, and what each provider calls it: see toolchains.toml."""

    name: str
    source: tuple[str, ...]
    base: bool = False
    index: tuple[str, ...] = ()
    package: str = ""
    beside: tuple[str, ...] = ()
    redist: tuple[str, ...] = ()
    redist_any: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    header: str = ""
    library: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentGroup:
    """Several components under one name."""

    name: str
    components: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitOnIndex:
    package: str
    since: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedistSite:
    url: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CondaChannel:
    """`compiler`: the package of the host compiler for each processor."""

    channel: str
    also: str
    compiler: dict[str, str]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerImage:
    image: str
    root: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianSuite:
    cuda: str
    suite: str
    packages: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    latest: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchains:
    """toolchains.toml."""

    sources: dict[str, Source]
    index: ToolkitOnIndex
    redist: RedistSite
    conda: CondaChannel
    container: ContainerImage
    debian: tuple[DebianSuite, ...]
    releases: Releases
    group: tuple[ComponentGroup, ...]
    component: tuple[Component, ...]
