"""Where what a library needs comes from: the wheel, the environment, the driver, the system; and which torch it needs.

Releases of torch that nobody has installed here are judged by what they export.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code.libraries import TorchExports
from cuwheel.facts import packages, torch, versions
from cuwheel.machine.fleet import Machine
from cuwheel.support.patterns import lazy_pattern
from cuwheel.support.wording import file_name, runs
from cuwheel.verdicts import drivers
from cuwheel.verdicts.loading import loading
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from cuwheel.device_code.libraries import Library, Survey
    from cuwheel.facts.packages import Library as CudaLibrary


# wheel: beside it, on its search path. loaded: in the wheel, but the path does not lead there. required: a package that
# it requires brings it. toolkit: of a toolkit in the system, if the loader knows the folder. nowhere: it is not there.
Place: TypeAlias = Literal[
    "wheel", "loaded", "system", "driver", "environment", "required", "framework", "toolkit", "unknown", "nowhere"
]
_WHOLE_TOOLKIT = "cuda-toolkit"


class Needed(Struct, frozen=True, kw_only=True):
    """`brought_by`: the package that would bring it, where there is one. `found`: where it is, or what is instead."""

    soname: str
    place: Place
    brought_by: str = ""
    found: str = ""


class Surroundings(Struct, frozen=True, kw_only=True):
    """Where the libraries of one target look for others: made once, since a target may have thousands of files.

    `inside`: the target's own libraries, by name and by soname. `required`: what an installer brings with it.
    `follows`: the framework by whose CUDA a library was chosen, so that what comes with that one is there.
    """

    machine: Machine
    inside: Mapping[str, str]
    required: Mapping[str, str | None]
    follows: str | None


def surroundings(survey: Survey, machine: Machine, *, follows: str | None = None) -> Surroundings:
    inside = {packages.as_compared(file_name(each.path)): each.path for each in survey.libraries}
    inside |= {each.soname: each.path for each in survey.libraries if each.soname}
    return Surroundings(machine=machine, inside=inside, required=_required(survey, machine), follows=follows)


def resolve_needed(library: Library, around: Surroundings) -> tuple[Needed, ...]:
    """For each library that it needs, where that comes from as far as the machine is known."""
    return tuple(_resolve(soname, library, around) for soname in library.needed)


def _resolve(soname: str, library: Library, around: Surroundings) -> Needed:
    if path := around.inside.get(packages.as_compared(soname)):
        on_path = posixpath.dirname(path) in set(_search_path(library))
        return Needed(soname=soname, place="wheel" if on_path else "loaded", found=path)
    if packages.from_system(soname) or library.format == "pe":
        known = packages.known_library(soname) if library.format == "pe" else None
        if known is None:
            return Needed(soname=soname, place="system")
    if framework := packages.framework_of(soname):
        # An environment that was looked at and has no torch has none; of another one that is not known.
        if around.machine.torch is not None:
            place: Place = "framework"
        elif framework in around.required:
            place = "required"
        else:
            place = "unknown" if around.machine.libraries is None else "nowhere"
        return Needed(soname=soname, place=place, brought_by=framework)
    cuda = packages.known_library(soname)
    if cuda is None:
        return Needed(soname=soname, place="unknown")
    if cuda.from_driver:
        return Needed(soname=soname, place="driver")
    # The package that brings it: of the library's own CUDA major, where one soname serves several.
    package = cuda.package_for(drivers.cuda_major(library))
    needed = Needed(soname=soname, place="unknown", brought_by=package.name if package else "")
    return _of_cuda(needed, cuda, library, around)


def _of_cuda(needed: Needed, cuda: CudaLibrary, library: Library, around: Surroundings) -> Needed:
    """In the order of certainty: what is seen there, what an installer brings, what ought to come with something."""
    required, machine, follows = around.required, around.machine, around.follows
    bringing = {package.name for package in cuda.packages}
    there = machine.libraries
    if there is not None and _same_soname(needed.soname, there):
        place: Place = "environment"
    elif required.keys() & {*bringing, _WHOLE_TOOLKIT} or any(
        packages.framework_brings(name, cuda.component, release=pinned, bare=True) for name, pinned in required.items()
    ):
        place = "required"
    elif there is None and _comes_with_framework(cuda, machine, follows):
        place = "framework"
    elif any(versions.major(each) in cuda.majors for each in machine.toolkits):
        place = "toolkit"
    elif there is None and (framework := _of_another_major(cuda, library, around)):
        return replace(needed, place="nowhere", found=framework)
    else:
        place = "unknown" if there is None else "nowhere"
    return replace(needed, place=place)


def _comes_with_framework(cuda: CudaLibrary, machine: Machine, follows: str | None) -> bool:
    releases = {"torch": machine.torch, "jax": None}
    majors = _framework_majors(machine)
    if (
        follows
        and follows not in majors
        and packages.framework_brings(follows, cuda.component, release=releases.get(follows))
    ):
        return True
    return any(
        major in cuda.majors and packages.framework_brings(name, cuda.component, release=releases[name], cuda=major)
        for name, major in majors.items()
    )


def _framework_majors(machine: Machine) -> dict[str, int]:
    built_for = {"torch": machine.torch_cuda, "jax": machine.jax_cuda}
    return {name: versions.major(version) for name, version in built_for.items() if version}


def _of_another_major(cuda: CudaLibrary, library: Library, around: Surroundings) -> str:
    """The framework that an extension of it finds another CUDA major's with: `torch for CUDA 12`. Empty: there is none.

    What neither extends nor follows a framework may have its libraries from elsewhere.
    """
    extends = {around.follows, *(packages.framework_of(each) for each in library.needed)}
    for name, major in _framework_majors(around.machine).items():
        if name in extends and major not in cuda.majors and packages.framework_brings(name, cuda.component, cuda=major):
            return f"{name} for CUDA {major}"
    return ""


def _same_soname(soname: str, there: Iterable[str]) -> bool:
    wanted = packages.as_compared(soname)
    return any(each == wanted or each.startswith(f"{wanted}.") for each in map(packages.as_compared, there))


def _search_path(library: Library) -> Iterator[str]:
    """The folders inside the wheel that its RPATH or RUNPATH names; RUNPATH hides RPATH."""
    here = posixpath.dirname(library.path.replace("\\", "/"))
    for entry in library.runpath or library.rpath:
        for origin in ("$ORIGIN", "${ORIGIN}"):
            if entry.startswith(origin):
                yield posixpath.normpath(here + entry[len(origin) :])


def _system(survey: Survey) -> str:
    """Which one a wheel is for, where nothing else tells."""
    return "windows" if any(each.format == "pe" for each in survey.libraries) else "linux"


def _cpu(survey: Survey) -> str:
    return next((each.machine for each in survey.libraries if each.machine), "x86_64")


def _required(survey: Survey, machine: Machine) -> dict[str, str | None]:
    """What an installer brings with the distribution, without being asked for an extra, and the pinned release.

    What is installed already brings nothing more; nor does a torch that is there bring another major's libraries.
    """
    requires = survey.distribution.requires if survey.distribution and survey.kind == "wheel" else ()
    if not requires:
        return {}
    from cuwheel.wheel import requirements  # noqa: PLC0415 - few answers need it

    names = requirements.brought(
        requires, system=machine.os or _system(survey), cpu=machine.cpu or _cpu(survey), python=machine.python
    )
    return {
        name: pinned for name, pinned in names.items() if name != "torch" or not (machine.torch or machine.torch_cuda)
    }


# Releases of torch that nobody has installed here: what they export, and which of them a wheel goes with.

_ANYWHERE = Machine(name="", capability=None)
_OF_CUDA = lazy_pattern(r"cu\d+", re.ASCII)
_MINOR_ONLY = lazy_pattern(r"\d+\.\d+", re.ASCII)
_PATCHES = 10  # as many as a minor release may come to have
_LOCAL = lazy_pattern(r"\+[A-Za-z0-9._-]+", re.ASCII)


def torch_exports(version: str, survey: Survey, wanted: Collection[str]) -> TorchExports | None:
    """Which of these symbols that torch has; None for one that is not in the table, or was built by others."""
    release = _torch_release_in_table(version) if wanted else None
    if release and not _told_by_table(release, survey):
        return None
    if release is None:
        return None
    return TorchExports(version, frozenset(wanted), torch.exported_symbols(release, wanted))


def _told_by_table(release: str, survey: Survey) -> bool:
    """Whether a wheel for this processor takes the symbols of those that were read."""
    return torch.has_new_strings(release) or {each.machine for each in survey.libraries} <= {torch.SYMBOLS_CPU}


def _torch_release_in_table(version: str) -> str | None:
    """The release that tells of a version, as people or installers write it: `2.9`, `2.9.0+cu128`."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - few answers need it

    try:
        asked = Version(version)
    except InvalidVersion:
        return None
    if asked.is_prerelease or (asked.local and not _OF_CUDA.fullmatch(asked.local)):
        return None
    same = (each for each in torch.own_symbols().releases if Version(each).release[:2] == asked.release[:2])
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
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - few answers need it

    having = torch.releases_exporting(needed)
    found = (each for each in torch.own_symbols().releases if each in having or not _told_by_table(each, survey))
    allowed = [SpecifierSet(_LOCAL.sub("", str(each.specifier))) for each in torch_requirements(survey)]
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
    from cuwheel.wheel import requirements  # noqa: PLC0415 - few answers need it

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
    from packaging.version import Version  # noqa: PLC0415 - few answers need it

    *_, last = Version(release).release
    patches = [f"{versions.minor(release)}.{patch}" for patch in range(last + 1)]
    return any(all(each.contains(patch) for each in allowed) for patch in patches)


def torch_releases_in_words(releases: Sequence[str]) -> str:
    """`2.8 to 2.10`, as far as the table has none between them that is missing."""
    known = [versions.minor(each) for each in torch.own_symbols().releases]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs(releases, known))
