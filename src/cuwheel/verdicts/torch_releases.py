"""Releases of torch that nobody has installed here: what they export, and which of them a wheel goes with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from cuwheel.device_code.torch_symbols import TorchExports
from cuwheel.facts import torch_symbols, versions
from cuwheel.machine.fleet import Machine
from cuwheel.support.units import runs
from cuwheel.verdicts.loading import loading
from cuwheel.wheel import requirements
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from packaging.requirements import Requirement

    from cuwheel.device_code.libraries import Survey

_ANYWHERE = Machine(name="", capability=None)
_OF_CUDA = re.compile(r"cu\d+", re.ASCII)
_MINOR_ONLY = re.compile(r"\d+\.\d+", re.ASCII)
_PATCHES = 10  # as many as a minor release may come to have
_LOCAL = re.compile(r"\+[A-Za-z0-9._-]+", re.ASCII)


def exports(version: str, wanted: Collection[str]) -> TorchExports | None:
    """Which of these symbols that torch has; None for one that is not in the table, or was built by others."""
    release = _tabled(version) if wanted else None
    if release is None:
        return None
    return TorchExports(version, frozenset(wanted), torch_symbols.exported(release, wanted))


def _tabled(version: str) -> str | None:
    """The release that tells of a version, as people or installers write it: `2.9`, `2.9.0+cu128`."""
    try:
        asked = Version(version)
    except InvalidVersion:
        return None
    if asked.is_prerelease or (asked.local and not _OF_CUDA.fullmatch(asked.local)):
        return None
    same = (each for each in torch_symbols.own().releases if Version(each).release[:2] == asked.release[:2])
    release = next(same, None)
    if release and asked.local and not torch_symbols.has_new_strings(release):
        return None  # torch's own index had builds of both kinds then
    return release


def fitting(survey: Survey) -> tuple[str, ...] | None:
    """The minor releases that it goes with, the oldest first: they export what it takes, and it allows them.

    None for what is not an extension of torch.
    """
    needed = _needed(survey)
    if not needed:
        return None
    found = torch_symbols.exporting(needed)
    allowed = [SpecifierSet(_LOCAL.sub("", str(each.specifier))) for each in required(survey)]
    return tuple(versions.minor(each) for each in found if _any_patch(each, allowed))


def known() -> tuple[str, ...]:
    """The minor releases in the table, the newest first."""
    return tuple(versions.minor(each) for each in reversed(torch_symbols.own().releases))


def unfit(survey: Survey) -> Iterator[tuple[str, str]]:
    """The minor releases that it does not go with, each with the reason."""
    for release in known():
        refusing = next((each for each in required(survey) if not allows(each, release)), None)
        if refusing:
            yield release, f"it requires torch{refusing.specifier}, not {release}"
        elif names := lacking(survey, release):
            what = "a symbol" if len(names) == 1 else f"{len(names)} symbols"
            yield release, f"it needs {what} that torch {release} does not have"


def lacking(survey: Survey, version: str) -> frozenset[str]:
    """What it needs and that torch does not have; nothing where that torch is not in the table."""
    found = exports(version, _needed(survey))
    return found.asked - found.names if found else frozenset()


def _needed(survey: Survey) -> frozenset[str]:
    """What the libraries take that the import loads; where none of those takes anything, all of them."""
    certain = frozenset(loading(survey, _ANYWHERE).certain)
    taking = [each for each in survey.libraries if each.torch_symbols]
    return frozenset(
        name for each in [each for each in taking if each.path in certain] or taking for name in each.torch_symbols
    )


def required(survey: Survey) -> Iterator[Requirement]:
    """What its metadata says of torch, outside of extras."""
    for text in survey.distribution.requires if survey.distribution else ():
        found = requirements.parse(text)
        if found and normalised(found.name) == "torch" and "extra" not in str(found.marker):
            yield found


def allows(wanted: Requirement, version: str) -> bool:
    """Whether a requirement takes a torch; of one that is named by its minor release alone, any patch."""
    named = [f"{version}.{patch}" for patch in range(_PATCHES)] if _MINOR_ONLY.fullmatch(version) else [version]
    return any(wanted.specifier.contains(each, prereleases=True) for each in named)


def _any_patch(release: str, allowed: Sequence[SpecifierSet]) -> bool:
    """Whether one of the patches up to the one in the table is allowed: they keep the interface."""
    *_, last = Version(release).release
    patches = [f"{versions.minor(release)}.{patch}" for patch in range(last + 1)]
    return any(all(each.contains(patch) for each in allowed) for patch in patches)


def in_words(releases: Sequence[str]) -> str:
    """`2.8 to 2.10`, as far as the table has none between them that is missing."""
    known = [versions.minor(each) for each in torch_symbols.own().releases]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs(releases, known))
