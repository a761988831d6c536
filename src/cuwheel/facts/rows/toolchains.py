"""Where toolkits come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from cuwheel.facts.rows.common import Source


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
    """`before`: the image of releases before `since`."""

    image: str
    since: str
    before: str
    root: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianSuite:
    cuda: str
    suite: str
    packages: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerVariable:
    """Which variable tells nvcc its host compiler: `variable` from `since` on, flags in `before` always."""

    variable: str
    since: str
    before: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The last patch release of each minor; `earlier`: of providers that do not have that one."""

    latest: tuple[str, ...]
    checked: str
    source: tuple[str, ...]
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchains:
    """toolchains.toml."""

    sources: dict[str, Source]
    index: ToolkitOnIndex
    redist: RedistSite
    conda: CondaChannel
    container: ContainerImage
    debian: tuple[DebianSuite, ...]
    ccbin: CompilerVariable
    releases: Releases
    group: tuple[ComponentGroup, ...]
    component: tuple[Component, ...]
