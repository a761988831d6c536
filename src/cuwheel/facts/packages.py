"""Which CUDA library a file name is, which package brings it, and which libraries a package loads."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables
from cuwheel_core.facts import versions
from cuwheel_core.support.patterns import matches_any
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.facts.rows.packages import FilesForGpus, PackageNeeds, PackageProfile, SomeBring

# Which CUDA library a file name is, and which package brings it.


def find_profile(name: str, release: str | None = None) -> PackageProfile | None:
    """The profile of a distribution, by any spelling of its name; None for one that nobody described.

    `release`: its version, or that of the rule which its files show (`shown_release`); without one, the newest.
    """
    rows = _profiles(name)
    if release is not None:
        rows = [row for row in rows if row.since is None or versions.at_least(release, row.since)] or rows[-1:]
    return rows[0] if rows else None


def shown_release(name: str, text_of: Callable[[str], str]) -> str | None:
    """The release by whose rules a package chooses, as its own files show; None where they show none.

    `text_of`: the text of a file beside its libraries, empty where there is none.
    """
    texts: dict[str, str] = {}
    for row in _profiles(name):
        if row.recognised_by is None or row.since is None:
            continue
        if row.recognised_by.file not in texts:
            texts[row.recognised_by.file] = text_of(row.recognised_by.file)
        text = texts[row.recognised_by.file]
        if all(each in text for each in row.recognised_by.words) and not any(
            each in text for each in row.recognised_by.without
        ):
            return row.since
    return None


def _profiles(name: str) -> list[PackageProfile]:
    """Those of the first names that fit it, the newest release first."""
    wanted = normalised(name)
    rows = [row for row in tables().packages.profile if matches_any(wanted, row.names)]
    return [row for row in rows if row.names == rows[0].names]


def files_for_gpus(path: str) -> list[FilesForGpus]:
    """What the table says of files with such a path, whatever package they are of."""
    name = path.replace("\\", "/")
    return [row for row in tables().packages.for_gpus if matches_any(name, row.files)]


def made_for(profile: PackageProfile, path: str) -> str | None:
    """The CUDA that a library of a package with one library a version was made for: `12.6`, or `12` alone."""
    match = re.search(profile.pattern, path.replace("\\", "/")) if profile.pattern else None
    return ".".join(match.groups()) if match else None


def best_version(profile: PackageProfile, there: Iterable[str], wanted: str) -> str | None:
    """The version that a package loads for `wanted`, of those that are there: see packages.toml."""
    if profile.picks == "exact":
        return next((each for each in there if each == versions.minor(wanted)), None)
    same = [each for each in there if versions.major(each) == versions.major(wanted)]
    key = versions.key
    lower = [each for each in same if key(each) <= key(wanted)]
    return max(lower, key=key) if lower else min(same, key=key, default=None)


def cpu_distribution(name: str) -> str | None:
    """What a package's makers publish for machines without a GPU, where that is a package of its own."""
    wanted = normalised(name)
    rows = tables().packages.cpu
    return next((row.distribution for row in rows if matches_any(wanted, row.names)), None)


def packages_with_needs() -> dict[str, tuple[str, ...]]:
    """Those of which `needs_of` knows something, and what people call them."""
    rows = tables().packages.needs
    return {
        each.name: (each.name, *(other for row in rows if row.name == each.name for other in row.called))
        for each in rows
    }


def needs_of(name: str, release: str) -> PackageNeeds | None:
    """What a release needs; None where the table does not reach back so far."""
    rows = (row for row in tables().packages.needs if row.name == name and versions.at_least(release, row.since))
    return max(rows, key=lambda row: versions.key(row.since), default=None)


def distribution_of_module(module: str) -> str | None:
    """What to ask an index for, so that `import module` works: `pyyaml` for `yaml`, or its own name where that is not
    known to differ. Empty where no distribution brings it; None where its name is not known either way.
    """
    top = module.partition(".")[0]
    row = next((row for row in tables().packages.imported if row.module == top), None)
    if row is not None:
        return row.distribution
    return "" if top in sys.stdlib_module_names else None


def choosing_variables() -> frozenset[str]:
    """The variables by which somebody chooses what a package loads."""
    return frozenset(row.override for row in tables().packages.profile if row.override)


def is_variant(profile: PackageProfile, path: str) -> bool:
    """Whether a library is the one for GPUs below the capability that the profile names."""
    stem = path.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return profile.variant is not None and stem.endswith(profile.variant.name)


@lru_cache(maxsize=4096)  # the same few names for every library and machine
def from_system(soname: str) -> bool:
    """Whether every Linux has it."""
    return matches_any(soname, tables().packages.system.libraries)


@lru_cache(maxsize=4096)
@lru_cache(maxsize=4096)
def framework_of(soname: str) -> str | None:
    """The framework whose own package brings a library: `torch` for libc10.so."""
    for row in tables().packages.framework:
        if matches_any(soname, row.libraries):
            return row.name
    return None


def is_framework(name: str) -> bool:
    return any(row.name == normalised(name) for row in tables().packages.framework)


def framework_brings(
    framework: str, component: str, *, release: str | None = None, cuda: int | None = None, bare: bool = False
) -> bool:
    """Whether a CUDA build of a framework comes with a component of CUDA: `cublas` with torch.

    `release`, `cuda`: of the framework; where one is not known, what comes with any build of it counts. `bare`: and an
    installer that is told its name alone brings such a build.
    """
    patterns = components_of_framework(framework, release=release, cuda=cuda, bare=bare)
    return matches_any(component, patterns)


def components_of_framework(
    framework: str, *, release: str | None = None, cuda: int | None = None, bare: bool = False
) -> tuple[str, ...]:
    """The patterns of all components that come with it, as `brings` asks for one."""
    for row in tables().packages.framework:
        if row.name == framework and not (bare and row.only_with_extra):
            some = (pattern for each in row.some if _is_of(each, release, cuda) for pattern in each.brings)
            return (*row.brings, *some)
    return ()


def _is_of(some: SomeBring, release: str | None, cuda: int | None) -> bool:
    if release and some.since and not versions.at_least(release, some.since):
        return False
    if release and some.below and versions.at_least(release, some.below):
        return False
    return cuda is None or some.cuda in (None, cuda)


def gcc_of_glibcxx(version: str) -> str | None:
    """The GCC whose libstdc++ first has the symbols `GLIBCXX_version`."""
    return next((row.gcc for row in tables().manylinux.libstdcxx if row.glibcxx == version), None)
