"""Which libraries of a package are loaded on a machine: all of them, or one that follows a framework's CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts import packages, versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.facts.rows.packages import PackageProfile
    from cuwheel.inspection.values import Library, Survey
    from cuwheel.machine.fleet import Machine

_ORDINARY_DIGITS = 2  # of a CUDA major in a variable such as BNB_CUDA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Libraries that are loaded together, for one CUDA of the framework."""

    cuda: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """`always`: loaded for certain. `candidates`: one of these, and it is not known which.

    `optional`: opened only when something asks for them. `missing`: why there is none that could be loaded.
    """

    always: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()
    optional: tuple[str, ...] = ()
    follows: str | None = None
    missing: str = ""


def loading(survey: Survey, machine: Machine) -> Loading:
    """By the profile of the package; one that nobody described loads everything that it has."""
    alone = survey.kind == "file"
    paths = tuple(each.path for each in survey.libraries if alone or is_loadable(each))
    profile = packages.find_profile(survey.distribution.name) if survey.distribution else None
    if profile is None:
        return Loading(always=paths)
    if profile.loads == "every":
        optional = tuple(path for path in paths if any(fnmatchcase(path, each) for each in profile.optional))
        return Loading(always=paths, optional=optional)
    return _one(profile, paths, machine)


def is_loadable(library: Library) -> bool:
    """Objects and static archives are for building; executables (ptxas, protoc) run on their own."""
    return library.type not in ("relocatable", "executable") or library.format in ("fatbin", "cubin")


def _one(profile: PackageProfile, paths: Sequence[str], machine: Machine) -> Loading:
    versioned: dict[str, list[str]] = {}
    for path in paths:
        if cuda := packages.made_for(profile, path):
            versioned.setdefault(cuda, []).append(path)
    inside = {path for group in versioned.values() for path in group}
    # Beside those for CUDA there are libraries for other kinds of machine (CPU, ROCm, XPU): none of our business.
    rest = tuple(path for path in paths if path not in inside and not versioned)
    if not versioned:
        return Loading(always=rest)
    wanted, why = _wanted(profile, machine)
    if wanted is None:
        candidates = tuple(
            Candidate(cuda=cuda, paths=tuple(versioned[cuda])) for cuda in sorted(versioned, key=versions.key)
        )
        return Loading(always=rest, candidates=candidates, follows=profile.follows)
    chosen = wanted if "=" in why and wanted in versioned else None
    if "=" not in why:
        chosen = packages.best_version(versioned, wanted)
    if chosen is None:
        return Loading(always=rest, follows=profile.follows, missing=_missing(profile, versioned, wanted, why))
    return Loading(always=(*rest, *versioned[chosen]), follows=profile.follows)


def _wanted(profile: PackageProfile, machine: Machine) -> tuple[str | None, str]:
    """The CUDA version that decides, and who says so: a variable as NAME=VALUE, or the framework."""
    if profile.override and (value := machine.loads_by(profile.override)):
        major, minor = value[:_ORDINARY_DIGITS], value[_ORDINARY_DIGITS:]
        return (f"{major}.{minor}" if minor else major), f"{profile.override}={value}"
    known = {"torch": machine.torch_cuda, "jax": machine.jax_cuda}
    cuda = known.get(profile.follows or "")
    return cuda, f"{profile.follows} is built for CUDA {cuda}"


def _missing(profile: PackageProfile, there: Mapping[str, object], wanted: str, why: str) -> str:
    said = f': "{profile.missing}"' if profile.missing and "=" in why else ""
    have = ", ".join(sorted(there, key=versions.key))
    return f"{why}, and of the libraries, for CUDA {have}, none is for {wanted}{said}"
