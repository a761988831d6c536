"""Where toolkits come from."""

from __future__ import annotations

from msgspec import Struct, field

from cuwheel_core.facts.rows.common import Source


class Component(Struct, frozen=True, kw_only=True):
    """A part of a toolkit, or a library beside it, and what each provider calls it: see toolchains.toml."""

    name: str
    source: tuple[str, ...]
    base: bool = False
    programs: bool = False
    index: tuple[str, ...] = ()
    package: str = ""
    beside: tuple[str, ...] = ()
    redist: tuple[str, ...] = ()
    redist_any: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    header: str = ""
    library: str = ""


class ComponentGroup(Struct, frozen=True, kw_only=True):
    """Several components under one name."""

    name: str
    components: tuple[str, ...]
    source: tuple[str, ...]


class ToolkitOnIndex(Struct, frozen=True, kw_only=True):
    """`compiler`: the package of nvcc, whose version is nvcc's own; `before`: the one that had ptxas alone."""

    package: str
    compiler: str
    since: str
    before: str
    ptxas_since: str
    linker: str
    linker_before: str
    linker_since: str
    source: tuple[str, ...]


class PtxasOptions(Struct, frozen=True, kw_only=True):
    """Options that say how to compile, without their dashes: `valued` take a word. `dropped`: what need not be said."""

    flags: frozenset[str]
    valued: frozenset[str]
    dropped: frozenset[str]
    source: tuple[str, ...]


class RedistSite(Struct, frozen=True, kw_only=True):
    url: str
    source: tuple[str, ...]


class CondaChannel(Struct, frozen=True, kw_only=True):
    """`compiler`: the package of the host compiler for each processor."""

    channel: str
    also: str
    compiler: dict[str, str]
    source: tuple[str, ...]


class ContainerImage(Struct, frozen=True, kw_only=True):
    """`before`: the image of releases before `since`."""

    image: str
    since: str
    before: str
    root: str
    source: tuple[str, ...]


class DebianSuite(Struct, frozen=True, kw_only=True):
    cuda: str
    suite: str
    packages: tuple[str, ...]
    source: tuple[str, ...]


class CrossCompiler(Struct, frozen=True, kw_only=True):
    """A suite's compiler that runs `on` one processor and compiles for another; `glibc`: that of its `target`."""

    on: str
    target: str
    triplet: str
    suite: str
    gcc: str
    glibc: str
    packages: tuple[str, ...]
    source: tuple[str, ...]


class EmulatedPython(Struct, frozen=True, kw_only=True):
    """A suite's Python of another processor and what it needs to run under an emulator; `glibc`: that of the suite."""

    cpu: str
    suite: str
    python: str
    glibc: str
    packages: tuple[str, ...]
    source: tuple[str, ...]


class CompilerVariable(Struct, frozen=True, kw_only=True):
    """Which variable tells nvcc its host compiler: `variable` from `since` on, flags in `before` always."""

    variable: str
    since: str
    before: str
    source: tuple[str, ...]


class Releases(Struct, frozen=True, kw_only=True):
    """The last patch release of each minor; `earlier`: of providers that do not have that one."""

    latest: tuple[str, ...]
    checked: str
    source: tuple[str, ...]
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)


class CxxStandard(Struct, frozen=True, kw_only=True):
    """`names`: as they stand behind `-std=c++`. `gcc`: the first major release that takes them."""

    names: tuple[str, ...]
    gcc: int
    source: tuple[str, ...]


class Toolchains(Struct, frozen=True, kw_only=True):
    """toolchains.toml."""

    sources: dict[str, Source]
    index: ToolkitOnIndex
    ptxas: PtxasOptions
    redist: RedistSite
    conda: CondaChannel
    container: ContainerImage
    debian: tuple[DebianSuite, ...]
    cross: tuple[CrossCompiler, ...]
    emulated: tuple[EmulatedPython, ...]
    ccbin: CompilerVariable
    releases: Releases
    standard: tuple[CxxStandard, ...]
    group: tuple[ComponentGroup, ...]
    component: tuple[Component, ...]


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
