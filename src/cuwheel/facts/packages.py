"""Which libraries a package loads, and which of those it needs are always there."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts import versions
from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.facts.rows.packages import PackageProfile, SomeBring


def find_profile(name: str) -> PackageProfile | None:
    """Of a distribution by any spelling of its name; None for one that nobody described."""
    wanted = re.sub(r"[-_.]+", "-", name).lower()
    for row in tables().packages.profile:
        if any(fnmatchcase(wanted, pattern) for pattern in row.names):
            return row
    return None


def made_for(profile: PackageProfile, path: str) -> str | None:
    """The CUDA that a library of a package with one library a version was made for: `12.6`, or `12` alone."""
    match = re.search(profile.pattern, path.replace("\\", "/")) if profile.pattern else None
    return ".".join(match.groups()) if match else None


def best_version(there: Iterable[str], wanted: str) -> str | None:
    """Of the versions that are there, the one that a package loads for `wanted`: see packages.toml."""
    same = [each for each in there if versions.major(each) == versions.major(wanted)]
    key = versions.key
    lower = [each for each in same if key(each) <= key(wanted)]
    return max(lower, key=key) if lower else min(same, key=key, default=None)


def from_system(soname: str) -> bool:
    """Whether every Linux has it."""
    return any(fnmatchcase(soname, pattern) for pattern in tables().packages.system.libraries)


def framework_of(soname: str) -> str | None:
    """The framework whose own package brings a library: `torch` for libc10.so."""
    for row in tables().packages.framework:
        if any(fnmatchcase(soname, pattern) for pattern in row.libraries):
            return row.name
    return None


def brings(
    framework: str, component: str, *, release: str | None = None, cuda: int | None = None, bare: bool = False
) -> bool:
    """Whether a CUDA build of a framework comes with a component of CUDA: `cublas` with torch.

    `release`, `cuda`: of the framework; where one is not known, what comes with any build of it counts. `bare`: and an
    installer that is told its name alone brings such a build.
    """
    for row in tables().packages.framework:
        if row.name == framework and not (bare and row.only_with_extra):
            some = (pattern for each in row.some if _is_of(each, release, cuda) for pattern in each.brings)
            return any(fnmatchcase(component, pattern) for pattern in (*row.brings, *some))
    return False


def _is_of(some: SomeBring, release: str | None, cuda: int | None) -> bool:
    if release and some.since and not versions.at_least(release, some.since):
        return False
    if release and some.below and versions.at_least(release, some.below):
        return False
    return cuda is None or some.cuda in (None, cuda)
