"""Where what a library needs comes from: the wheel, the environment, the driver, the system."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import packages
from cuwheel.machine.fleet import Machine
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.support.wording import file_name
from cuwheel_core.verdicts import drivers

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.facts.cuda_libraries import Library as CudaLibrary


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
    inside = {cuda_libraries.as_compared(file_name(each.path)): each.path for each in survey.libraries}
    inside |= {each.soname: each.path for each in survey.libraries if each.soname}
    return Surroundings(machine=machine, inside=inside, required=_required(survey, machine), follows=follows)


def resolve_needed(library: Library, around: Surroundings) -> tuple[Needed, ...]:
    """For each library that it needs, where that comes from as far as the machine is known."""
    return tuple(_resolve(soname, library, around) for soname in library.needed)


def _resolve(soname: str, library: Library, around: Surroundings) -> Needed:
    if path := around.inside.get(cuda_libraries.as_compared(soname)):
        on_path = posixpath.dirname(path) in set(_search_path(library))
        return Needed(soname=soname, place="wheel" if on_path else "loaded", found=path)
    if packages.from_system(soname) or library.format == "pe":
        known = cuda_libraries.known_library(soname) if library.format == "pe" else None
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
    cuda = cuda_libraries.known_library(soname)
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
    wanted = cuda_libraries.as_compared(soname)
    return any(each == wanted or each.startswith(f"{wanted}.") for each in map(cuda_libraries.as_compared, there))


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
