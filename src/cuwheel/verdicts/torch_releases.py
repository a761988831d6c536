"""Releases of torch that nobody has installed here: what they export, and which of them a wheel goes with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.device_code.contents import Survey, TorchExports
from cuwheel.facts import torch
from cuwheel.machine.fleet import Machine
from cuwheel.support import limited
from cuwheel.verdicts.loading import loading
from cuwheel.wheel import requirements
from cuwheel_core.facts import versions
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import runs
from cuwheel_core.verdicts.condition import ranges_in_words
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet


_ANYWHERE = Machine(name="", capability=None)
_OF_CUDA = lazy_pattern(r"cu\d+", re.ASCII)
_MINOR_ONLY = lazy_pattern(r"\d+\.\d+", re.ASCII)
_PATCHES = 10  # as many as a minor release may come to have
_LOCAL = lazy_pattern(r"\+[A-Za-z0-9._-]+", re.ASCII)


def torch_exports(version: str, survey: Survey, wanted: Collection[str]) -> TorchExports | None:
    """Which of these symbols that torch has; None for one that is not in the table, or was built by others."""
    release = _torch_release_in_table(version) if wanted else None
    if release is None or not _told_by_table(release, survey):
        return None
    return TorchExports(version, frozenset(wanted), torch.exported_symbols(release, wanted))


def _told_by_table(release: str, survey: Survey) -> bool:
    """Whether a wheel for this processor takes the symbols of those that were read."""
    return {each.machine for each in survey.libraries} <= {torch.SYMBOLS_CPU} or torch.has_new_strings(release)


def _torch_release_in_table(version: str) -> str | None:
    """The release that tells of a version, as people or installers write it: `2.9`, `2.9.0+cu128`."""
    from packaging.version import InvalidVersion  # noqa: PLC0415 - few answers need it

    try:
        asked = limited.version(version)
    except InvalidVersion:
        return None
    if asked.is_prerelease or (asked.local and not _OF_CUDA.fullmatch(asked.local)):
        return None
    same = (each for each in torch.own_symbols().releases if limited.version(each).release[:2] == asked.release[:2])
    release = next(same, None)
    if release and asked.local and not torch.has_new_strings(release):
        return None  # torch's own index had builds of both kinds then
    return release


def fitting_torch_releases(survey: Survey) -> tuple[str, ...] | None:
    """The minor releases that it goes with, the oldest first: they export what it takes, and it allows them.

    None for what is not an extension of torch.
    """
    needed = _needed_torch_symbols(survey)
    if not needed:
        return None

    having = torch.releases_exporting(needed)
    found = (each for each in torch.own_symbols().releases if each in having or not _told_by_table(each, survey))
    allowed = [limited.specifiers(_LOCAL.sub("", str(each.specifier))) for each in torch_requirements(survey)]
    return tuple(versions.minor(each) for each in found if _any_patch(each, allowed))


def known_torch_releases() -> tuple[str, ...]:
    """The minor releases in the table, the newest first."""
    return tuple(versions.minor(each) for each in reversed(torch.own_symbols().releases))


def unfit_torch_releases(survey: Survey) -> Iterator[tuple[str, str]]:
    """The minor releases that it does not go with, each with the reason."""
    for release in known_torch_releases():
        refusing = next((each for each in torch_requirements(survey) if not requirement_allows(each, release)), None)
        if refusing:
            yield release, f"it requires torch{refusing.specifier}, not {release}"
        elif names := lacking_torch_symbols(survey, release):
            what = "a symbol" if len(names) == 1 else f"{len(names)} symbols"
            yield release, f"it needs {what} that torch {release} does not have"


def lacking_torch_symbols(survey: Survey, version: str) -> frozenset[str]:
    """What it needs and that torch does not have; nothing where that torch is not in the table."""
    found = torch_exports(version, survey, _needed_torch_symbols(survey))
    return found.asked - found.names if found else frozenset()


def _needed_torch_symbols(survey: Survey) -> frozenset[str]:
    """What the libraries take that the import loads; where none of those takes anything, all of them."""
    certain = frozenset(loading(survey, _ANYWHERE).certain)
    taking = [each for each in survey.libraries if each.torch_symbols]
    return frozenset(
        name for each in [each for each in taking if each.path in certain] or taking for name in each.torch_symbols
    )


def torch_requirements(survey: Survey) -> Iterator[Requirement]:
    """What its metadata says of torch, outside of extras."""
    if not survey.distribution:
        return
    for text in survey.distribution.requires:
        found = requirements.parse(text)
        if found and normalised(found.name) == "torch" and "extra" not in str(found.marker):
            yield found


def requirement_allows(wanted: Requirement, version: str) -> bool:
    """Whether a requirement takes a torch; of one that is named by its minor release alone, any patch."""
    named = [f"{version}.{patch}" for patch in range(_PATCHES)] if _MINOR_ONLY.fullmatch(version) else [version]
    return any(wanted.specifier.contains(each, prereleases=True) for each in named)


def _any_patch(release: str, allowed: Sequence[SpecifierSet]) -> bool:
    """Whether one of the patches up to the one in the table is allowed: they keep the interface."""

    *_, last = limited.version(release).release
    patches = [f"{versions.minor(release)}.{patch}" for patch in range(last + 1)]
    return any(all(each.contains(patch) for each in allowed) for patch in patches)


def release_ranges(releases: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """First and last of releases that follow each other, as far as the table has none between them that is missing."""
    known = [versions.minor(each) for each in torch.own_symbols().releases]
    return tuple((run[0], run[-1]) for run in runs(releases, known))


def torch_releases_in_words(releases: Sequence[str]) -> str:
    """`2.8 to 2.10`."""
    return ranges_in_words(release_ranges(releases))
