"""Toolkits as wheels of the package index: whole ones since the release that the table names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnavailableError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.support import log
from cuwheel.toolchains import archives, workplace
from cuwheel.toolchains.toolchain import Recipe
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.toolchains.toolchain import Archive, Wanted
    from cuwheel.toolchains.workplace import Surroundings


def decide(wanted: Wanted, around: Surroundings) -> Recipe:  # noqa: ARG001 - one signature
    if not toolchain_parts.nvcc_on_index(wanted.cuda):
        since = tables().toolchains.index.since
        raise UnavailableError(f"the index has no nvcc before {since}: only ptxas, libnvvm and headers")
    found = _wheels(wanted, wanted.components)
    meta = tables().toolchains.index.package
    release = next((each.version for each in found if each.name == meta), wanted.asked)
    return Recipe(
        provider="index",
        cuda=wanted.cuda,
        release=release,
        platform=wanted.platform,
        components=tuple(row.name for row in wanted.components),
        archives=archives.in_order(each for each in found if each.name != meta),
        found_via=f"the index has {meta} {release}",
    )


def release_with(compiler: str) -> str | None:
    """The newest patch release whose nvcc is of this version (`13.2.51` → `13.2.0`); None where there is none."""
    minor, row = versions.minor(compiler), tables().toolchains.index
    if not toolchain_parts.nvcc_on_index(minor):
        return None
    try:
        found = archives.resolve_wheels((f"{row.package}[nvcc]=={minor}.*", f"{row.compiler}=={compiler}.*"))
    except CuwheelError as error:
        log.debug("the index has no CUDA %s with nvcc %s: %s", minor, compiler, error.message)
        return None
    release = next((each.version for each in found if each.name == row.package), "")
    return ".".join(release.split(".")[:3]) or None


def libraries(wanted: Wanted, components: Iterable[Component]) -> tuple[Archive, ...]:
    """Wheels of single components for toolkits of other providers."""
    meta = tables().toolchains.index.package
    return tuple(each for each in _wheels(wanted, components) if each.name != meta)


def _wheels(wanted: Wanted, components: Iterable[Component]) -> tuple[Archive, ...]:
    """Programs for the processor that compiles; what they compile against, for the one that it is for."""
    rows = tuple(components)
    programs = [row for row in rows if row.programs or not wanted.target]
    found: dict[str, Archive] = {}
    for cpu, chosen in ((None, programs), (wanted.target, [row for row in rows if row not in programs])):
        if requirements := tuple(_requirements(wanted, chosen)):
            resolved = archives.resolve_wheels(requirements, offline=wanted.offline, cpu=cpu)
            found |= {each.name: each for each in resolved}  # what programs brought along, and is no program, too
    return tuple(found.values())


def _requirements(wanted: Wanted, components: Iterable[Component]) -> Iterator[str]:
    """`13.0` means its last patch release; one that was named in full means that one."""
    rows = tuple(components)
    if extras := [extra for row in rows for extra in row.index]:
        yield f"{tables().toolchains.index.package}[{','.join(extras)}]=={wanted.asked}.*"
    major = wanted.toolkit.major
    yield from (row.package.format(major=major) for row in rows if row.package)


make = workplace.install_archives
