"""Which libraries of a package are loaded on a machine: all of them, or one that follows a framework's CUDA."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts import packages, versions
from cuwheel.units import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cuwheel.facts.rows.packages import PackageProfile
    from cuwheel.inspection.values import Library, Survey
    from cuwheel.machine.fleet import Machine

# A part of a path that names one GPU: sm90/, _sm_100a.so.
_FOR_ONE_GPU = re.compile(r"(?<![A-Za-z])sm_?\d{2,3}[af]?(?![A-Za-z0-9])")
_ORDINARY_DIGITS = 2  # of a CUDA major in a variable such as BNB_CUDA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Libraries that are loaded together, for one CUDA of the framework."""

    cuda: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """`always`: loaded for certain. `candidates`: one of these, and it is not known which.

    `optional`: opened only when something asks for them. `variants`: of each of these one is opened, for the GPU that
    is there. `described`: a profile of the package says all this. `missing`: why there is none that could be loaded.
    """

    always: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()
    optional: frozenset[str] = frozenset()
    variants: tuple[tuple[str, ...], ...] = ()
    described: bool = True
    follows: str | None = None
    missing: str = ""

    @property
    def certain(self) -> tuple[str, ...]:
        return tuple(path for path in self.always if path not in self.optional)


def loading(survey: Survey, machine: Machine) -> Loading:
    """By the profile of the package; of one that nobody described, by what its import and links pull in."""
    alone = survey.kind == "file"
    paths = tuple(each.path for each in survey.libraries if alone or is_loadable(each))
    profile = packages.find_profile(survey.distribution.name) if survey.distribution else None
    if profile is None:
        return _undescribed(survey, paths)
    if profile.loads == "every":
        optional = frozenset(path for path in paths if any(fnmatchcase(path, each) for each in profile.optional))
        return Loading(always=paths, optional=optional)
    return _one(profile, paths, machine)


def _undescribed(survey: Survey, paths: tuple[str, ...]) -> Loading:
    """What is not loaded for certain is opened on demand, as far as anybody can tell."""
    loadable = frozenset(paths)
    if survey.kind == "file" or sum(bool(each.device_code) for each in survey.libraries if each.path in loadable) <= 1:
        return Loading(always=paths)
    certain = _with_needed(survey, survey.imported)
    variants: dict[str, list[str]] = {}
    for path in paths:
        if _FOR_ONE_GPU.search(path):
            variants.setdefault(_FOR_ONE_GPU.sub("*", path), []).append(path)
    return Loading(
        always=paths,
        optional=loadable - certain,
        variants=tuple(tuple(each) for each in variants.values() if len(each) > 1),
        described=False,
    )


def _with_needed(survey: Survey, paths: Iterable[str]) -> frozenset[str]:
    """These libraries and those of the same target that they are linked with."""
    inside = {file_name(each.path): each for each in survey.libraries}
    inside |= {each.soname: each for each in survey.libraries if each.soname}
    by_path = {each.path: each for each in survey.libraries}
    found: set[str] = set()
    waiting = [by_path[path] for path in paths if path in by_path]
    while waiting:
        library = waiting.pop()
        if library.path not in found:
            found.add(library.path)
            waiting += [inside[soname] for soname in library.needed if soname in inside]
    return frozenset(found)


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
