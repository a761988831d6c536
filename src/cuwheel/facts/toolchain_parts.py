"""What a toolkit is made of and where it can be had; which spellings a CMake takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import versions
from cuwheel_core.support import wording

if TYPE_CHECKING:
    from cuwheel.facts.rows.toolchains import CMakeSpelling, Component, CxxStandard, DebianSuite


def all_components() -> tuple[Component, ...]:
    return tables().toolchains.component


def find_component(name: str) -> Component:
    wanted = name.strip().lower()
    for row in all_components():
        if row.name == wanted:
            return row
    known = [*(row.name for row in all_components()), *(row.name for row in tables().toolchains.group)]
    near = wording.similar_names(wanted, known)
    hint = "" if near else "there are " + ", ".join(known)
    raise UnknownNameError("component", name, near, hint=hint)


def find_components(name: str) -> tuple[Component, ...]:
    """The components of a group, or the one of that name."""
    for row in tables().toolchains.group:
        if row.name == name.strip().lower():
            return tuple(find_component(each) for each in row.components)
    return (find_component(name),)


def with_base(names: Iterable[str]) -> tuple[Component, ...]:
    """Every component that is part of any toolkit, those asked for, and those that go beside them."""
    wanted = {row.name for name in names for row in find_components(name)}
    wanted |= {other for row in all_components() if row.name in wanted for other in row.beside}
    return tuple(row for row in all_components() if row.base or row.name in wanted)


def release_of(cuda: str, provider: str = "") -> str | None:
    """The last patch release of a minor (`12.2` → `12.2.2`), or the last that a provider has."""
    rows = tables().toolchains.releases
    known = (*rows.earlier.get(provider, ()), *rows.latest)
    return next((each for each in known if versions.minor(each) == cuda), None)


def image_of(release: str) -> str:
    """The container image of a patch release."""
    row = tables().toolchains.container
    return (row.image if versions.at_least(release, row.since) else row.before).format(release=release)


def debian_suite(cuda: str) -> DebianSuite | None:
    return next((row for row in tables().toolchains.debian if row.cuda == cuda), None)


def reads_ccbin(cuda: str) -> bool:
    """Whether nvcc of this release reads the variable that names its host compiler."""
    return versions.at_least(cuda, tables().toolchains.ccbin.since)


def ccbin_variable(cuda: str, compiler: str) -> dict[str, str]:
    """The variable that makes nvcc of this release take this host compiler."""
    row = tables().toolchains.ccbin
    return {row.variable: compiler} if reads_ccbin(cuda) else {row.before: f"-ccbin {compiler}"}


def nvcc_on_index(cuda: str) -> bool:
    return versions.at_least(cuda, tables().toolchains.index.since)


def cxx_standard(name: str) -> CxxStandard | None:
    """`20`, as it stands behind `-std=c++`; None for one that is not known."""
    return next((row for row in tables().toolchains.standard if name in row.names), None)


def find_cmake_spelling(name: str) -> CMakeSpelling:
    """Finds a spelling of CMake by its name in the table: `plain`, `native`, `a`, `f`, …"""
    known = {row.spelling: row for row in tables().cmake.spelling}
    if name not in known:
        raise UnknownNameError("spelling of CMAKE_CUDA_ARCHITECTURES", name, list(known))
    return known[name]


def cmake_takes(version: str, spelling: str) -> bool:
    """Whether a CMake release takes this kind of value."""
    row = find_cmake_spelling(spelling)
    if versions.at_least(version, row.since):
        return True
    if row.unchecked_before and not versions.at_least(version, row.unchecked_before):
        return True
    same = [each for each in row.backports if versions.minor(each) == versions.minor(version)]
    return any(versions.at_least(version, each) for each in same)
