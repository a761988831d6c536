"""Questions about what a toolkit is made of, and where it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts import versions
from cuwheel.facts.tables import tables
from cuwheel.support import typos

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.facts.rows.toolchains import Component, CxxStandard, DebianSuite


def all_components() -> tuple[Component, ...]:
    return tables().toolchains.component


def find_component(name: str) -> Component:
    wanted = name.strip().lower()
    for row in all_components():
        if row.name == wanted:
            return row
    known = [*(row.name for row in all_components()), *(row.name for row in tables().toolchains.group)]
    near = typos.alike(wanted, known)
    hint = "" if near else "there are " + ", ".join(known)
    raise UnknownNameError("component", name, near, hint=hint)


def find_components(name: str) -> tuple[Component, ...]:
    """Of a group, or the one of that name."""
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


def ccbin(cuda: str, compiler: str) -> dict[str, str]:
    """The variable that makes nvcc of this release take this host compiler."""
    row = tables().toolchains.ccbin
    return {row.variable: compiler} if reads_ccbin(cuda) else {row.before: f"-ccbin {compiler}"}


def on_index(cuda: str) -> bool:
    """Whether the index has an nvcc of this release."""
    return versions.at_least(cuda, tables().toolchains.index.since)


def cxx_standard(name: str) -> CxxStandard | None:
    """`20`, as it stands behind `-std=c++`; None for one that is not known."""
    return next((row for row in tables().toolchains.standard if name in row.names), None)
