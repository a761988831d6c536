"""Which libraries of a package are loaded on a machine: all of them, or one that follows a framework's CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.facts import packages
from cuwheel.facts.rows.packages import PackageProfile
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.fix import Fix
from cuwheel_core.support.patterns import lazy_pattern, matches_any
from cuwheel_core.support.wording import file_name

if TYPE_CHECKING:
    from cuwheel.device_code.contents import PythonLoad, Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.device_code.libraries import Library

# A part of a path that names one GPU: sm90/, _sm_100a.so.
_FOR_ONE_GPU = lazy_pattern(r"(?<![A-Za-z])sm_?\d{2,3}[af]?(?![A-Za-z0-9])")
# A part of a path that names the CUDA it was made for: _cu12.so, _cuda126.so, cu13/.
_FOR_ONE_CUDA = lazy_pattern(r"(?<![A-Za-z0-9])cu(?:da)?[_-]?(1\d)\.?(\d)?(?![A-Za-z0-9])")
_ON_DEMAND = "it is opened only on demand: the rest works without it"
_LINKED = "it is only linked: what does not call it works without its code"
_NOT_TOGETHER = "no GPU could use all libraries of the package: they are not meant to run together"
_ORDINARY_DIGITS = 2  # of a CUDA major in a variable such as BNB_CUDA_VERSION


class Candidate(Struct, frozen=True, kw_only=True):
    """Libraries that are loaded together, for one CUDA of the framework."""

    cuda: str
    paths: tuple[str, ...]


class Loading(Struct, frozen=True, kw_only=True):
    """`always`: loaded for certain. `candidates`: one of these, and it is not known which.

    `optional`: the rest works without them, and `reasons` says why that is known (in words, by path). `linked`: they
    must be there, but only what calls them misses code that they lack. `main`: those that the package is for, and
    `does` says what for. `variants`: of each of these one is opened, for the GPU that is there. `described`: a profile
    of the package says all this. `missing`: why there is none that could be loaded, and what helps is in `fixes`;
    `stand_in`: the libraries that those of them load which change a variable or a file.
    """

    always: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()
    optional: frozenset[str] = frozenset()
    linked: frozenset[str] = frozenset()
    main: frozenset[str] = frozenset()
    does: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[tuple[str, ...], ...] = ()
    described: bool = True
    follows: str | None = None
    missing: str = ""
    fixes: tuple[Fix, ...] = ()
    stand_in: tuple[str, ...] = ()

    @property
    def certain(self) -> tuple[str, ...]:
        """What decides: the rest does not work without it."""
        return tuple(path for path in self.always if path not in self.optional and path not in self.linked)


def loading(survey: Survey, machine: Machine) -> Loading:
    """Tells which libraries are loaded: by the package's profile, or, if nobody described it, its import and links."""
    alone = survey.kind == "file"
    paths = tuple(each.path for each in survey.libraries if alone or is_loadable(each))
    profile = profile_of(survey)
    if profile is None:
        return _undescribed(survey, paths, machine)
    if profile.loads == "every":
        return _every_library(profile, survey, paths)
    versioned = by_cuda(profile, paths, machine)
    # Beside those for CUDA there are libraries for other kinds of machine (CPU, ROCm, XPU): none of our business.
    return choose(profile, versioned, machine) if versioned else Loading(always=paths)


def _every_library(profile: PackageProfile, survey: Survey, paths: tuple[str, ...]) -> Loading:
    described = {path for path in paths if matches_any(path, profile.optional)}
    linked = {path for path in paths if matches_any(path, profile.linked)}
    certain = _with_needed(survey, survey.imported)
    tried = {each.path for each in survey.python_loads if each.guarded and each.path not in certain}
    does: dict[str, str] = {}
    main: set[str] = set()
    for part in profile.parts:
        held = {path for path in paths if fnmatchcase(path, part.library)}
        does |= dict.fromkeys(held, part.does)
        main |= held if part.main else set()
    reasons = _reasons(survey, tried) | dict.fromkeys(described, _ON_DEMAND) | dict.fromkeys(linked, _LINKED)
    others = frozenset(described | tried)
    main |= set(paths) - others - linked - does.keys()
    return Loading(
        always=paths, optional=others, linked=frozenset(linked), main=frozenset(main), does=does, reasons=reasons
    )


def _undescribed(survey: Survey, paths: tuple[str, ...], machine: Machine) -> Loading:
    """What is not loaded for certain is opened on demand, as far as anybody can tell."""
    if survey.kind == "file":
        return Loading(always=paths)
    if chosen := _by_names(survey, paths, machine):
        return chosen
    with_code = frozenset(each.path for each in survey.libraries if each.device_code and each.path in set(paths))
    if len(with_code) <= 1:
        return Loading(always=paths)
    loaded = _with_needed(survey, survey.imported)
    linked = _only_linked(loaded, frozenset(survey.imported), with_code)
    optional = frozenset(paths) - loaded
    variants: dict[str, list[str]] = {}
    for path in paths:
        if _FOR_ONE_GPU.search(path):
            variants.setdefault(_FOR_ONE_GPU.sub("*", path), []).append(path)
    return Loading(
        always=paths,
        optional=optional,
        linked=linked,
        main=_main(survey, with_code, loaded - linked),
        reasons=_reasons(survey, optional) | dict.fromkeys(linked, _LINKED),
        variants=tuple(tuple(each) for each in variants.values() if len(each) > 1),
        described=False,
    )


def _only_linked(loaded: frozenset[str], imported: frozenset[str], with_code: frozenset[str]) -> frozenset[str]:
    """Libraries that come with what is imported: all, if that has code of its own; else CUDA's, if others come too."""
    pulled_in = (loaded - imported) & with_code
    if imported & with_code:
        return pulled_in
    bundled = frozenset(filter(is_bundled, pulled_in))
    return bundled if pulled_in - bundled else frozenset()


def is_bundled(path: str) -> bool:
    """Whether it is a library of others that lies in the package: CUDA's own, or what a repair took along."""
    name = cuda_libraries.plain_name(file_name(path))
    return path.partition("/")[0].endswith(".libs") or cuda_libraries.is_cuda_library(name)


def _main(survey: Survey, with_code: frozenset[str], certain: frozenset[str]) -> frozenset[str]:
    """What importing it loads; else what its Python tries to load then; else the library with most device code."""
    own = {each for each in with_code if not is_bundled(each)} or set(with_code)
    for_chosen_gpus = {each.path for each in survey.libraries if all(row.arch.suffix for row in each.device_code)}
    general = own - for_chosen_gpus or own
    tried = {each.path for each in survey.python_loads if each.at_import}
    if found := certain & general or tried & general:
        return frozenset(found)
    held = {each.path: sum(row.bytes for row in each.device_code) for each in survey.libraries if each.path in general}
    return frozenset({max(held, key=lambda path: held[path])})


def _by_names(survey: Survey, paths: tuple[str, ...], machine: Machine) -> Loading | None:
    """Libraries whose names differ by a CUDA version alone: the framework's decides which of them is loaded."""
    by_name: dict[str, dict[str, str]] = {}
    for path in paths:
        if match := _FOR_ONE_CUDA.search(path):
            cuda = ".".join(filter(None, match.groups()))
            by_name.setdefault(_FOR_ONE_CUDA.sub("*", path), {})[cuda] = path
    versioned: dict[str, tuple[str, ...]] = {}
    for name, held in by_name.items():
        if len(held) > 1:
            paths = tuple(each for each in paths if each not in (*held.values(), re.sub(r"[_-]?\*", "", name)))
            for cuda, path in held.items():
                versioned[cuda] = (*versioned.get(cuda, ()), path)
    if not versioned:
        return None
    profile = PackageProfile(names=(), loads="one", source=(), follows=_followed(survey), picks="nearest")
    found = choose(profile, versioned, machine)
    return replace(found, always=(*paths, *found.always), described=False)


def _followed(survey: Survey) -> Literal["torch", "jax", "cudart"]:
    """The framework that a package is for, by what it requires, links or is called."""
    about = survey.distribution
    words = [*(about.requires if about else ()), about.name if about else ""]
    words += [packages.framework_of(name) or "" for each in survey.libraries for name in each.needed]
    if any(re.match(r"torch(?![a-z])", each) for each in words):
        return "torch"
    return "jax" if any(re.match(r"jax(?![a-z])|jaxlib", each) for each in words) else "cudart"


def _reasons(survey: Survey, optional: Iterable[str]) -> dict[str, str]:
    """Why libraries are optional, by path: what in the package's Python loads each, and that the rest works without."""
    by: dict[str, PythonLoad] = {}
    for load in survey.python_loads:
        by |= {path: load for path in _with_needed(survey, [load.path]) if path not in by}
    by |= {load.path: load for load in survey.python_loads}
    return {path: _reason(by.get(path)) for path in optional}


def _reason(load: PythonLoad | None) -> str:
    if load is None:
        return "nothing loads it when the package is imported: the rest works without it"
    if load.at_import and not load.guarded:
        return f"{load.file} loads it at import, but other libraries run"
    when = " at import" if load.at_import else ""
    how = ", in a `try` or under a condition" if load.guarded else ", which importing the package does not run"
    return f"{load.file} loads it{when}{how}: the rest works without it"


def with_optional(load: Loading, paths: Iterable[str]) -> Loading:
    """The loading with these libraries, each of which is for other GPUs than the rest, optional too."""
    others = set(paths) - load.optional
    reasons = {**load.reasons, **dict.fromkeys(others, _NOT_TOGETHER)}
    return replace(load, optional=load.optional | others, reasons=reasons)


def _with_needed(survey: Survey, paths: Iterable[str]) -> frozenset[str]:
    """These libraries and those of the same target that they are linked with."""
    inside = {cuda_libraries.as_compared(file_name(each.path)): each for each in survey.libraries}
    inside |= {each.soname: each for each in survey.libraries if each.soname}
    by_path = {each.path: each for each in survey.libraries}
    found: set[str] = set()
    waiting = [by_path[path] for path in paths if path in by_path]
    while waiting:
        library = waiting.pop()
        if library.path not in found:
            found.add(library.path)
            waiting += [inside[name] for name in map(cuda_libraries.as_compared, library.needed) if name in inside]
    return frozenset(found)


def profile_of(survey: Survey) -> PackageProfile | None:
    """How the package chooses its libraries, by its own files, else by its version."""
    distribution = survey.distribution
    return packages.find_profile(distribution.name, survey.loads_as or distribution.version) if distribution else None


def is_loadable(library: Library) -> bool:
    """Objects and static archives are for building; executables (ptxas, protoc) run on their own."""
    return library.type not in ("relocatable", "executable") or library.format in ("fatbin", "cubin", "ptx")


def by_cuda(profile: PackageProfile, paths: Sequence[str], machine: Machine) -> dict[str, tuple[str, ...]]:
    """The libraries of a package that has one for each CUDA, by that; of two for one CUDA those for the GPU."""
    versioned: dict[str, tuple[str, ...]] = {}
    for path in paths:
        if (cuda := packages.made_for(profile, path)) and _is_for_gpu(profile, path, machine):
            versioned[cuda] = (*versioned.get(cuda, ()), path)
    return versioned


def choose(profile: PackageProfile, versioned: Mapping[str, tuple[str, ...]], machine: Machine) -> Loading:
    """Chooses, among libraries for one CUDA each, those that the framework or a variable makes the package load."""
    value = machine.loads_by(profile.override) if profile.override else None
    if value or (value is not None and profile.override_digits):
        return _by_variable(profile, versioned, machine, value)
    cuda = framework_cuda(profile, machine)
    if cuda is None:
        candidates = tuple(Candidate(cuda=each, paths=versioned[each]) for each in sorted(versioned, key=versions.key))
        return Loading(always=(), candidates=candidates, follows=profile.follows)
    if chosen := packages.best_version(profile, versioned, cuda):
        return Loading(always=versioned[chosen], follows=profile.follows)
    why = f"{profile.follows} is built for CUDA {cuda}, and {_none_for(profile, versioned, cuda)}"
    return _stand_in(profile, versioned, cuda, machine, why)


def _is_for_gpu(profile: PackageProfile, path: str, machine: Machine) -> bool:
    """Whether this of two libraries for one CUDA is the one for the machine's GPU; both are where that is not known."""
    below = _loads_variant(profile, machine)
    return below is None or packages.is_variant(profile, path) == below


def _loads_variant(profile: PackageProfile, machine: Machine) -> bool | None:
    """Whether the GPU loads the variant; None where there is none, or the GPU is not known."""
    if profile.variant is None or machine.capability is None:
        return None
    return machine.capability < profile.variant.below


def framework_cuda(profile: PackageProfile, machine: Machine) -> str | None:
    return {"torch": machine.torch_cuda, "jax": machine.jax_cuda}.get(profile.follows or "")


def _by_variable(
    profile: PackageProfile, versioned: Mapping[str, tuple[str, ...]], machine: Machine, value: str
) -> Loading:
    setting = f"{profile.override}={value}"
    cuda = framework_cuda(profile, machine)
    otherwise = packages.best_version(profile, versioned, cuda) if cuda else None
    text = f"it then loads the library for CUDA {otherwise}" if otherwise else ""
    fix = [Fix(text=text, commands=(("unset", profile.override or ""),), changes=("variable",))]
    if not otherwise:
        values = " or ".join(digits(each) for each in sorted(versioned, key=versions.key))
        fix.append(Fix(text=f"set it to {values}", changes=("variable",)))
    if profile.override_digits and not (value.isascii() and value.isdigit()):
        return _nothing_to_load(profile, f"{setting}: it must be digits only", fix)
    if profile.variant and _loads_variant(profile, machine) and not profile.override_keeps_variant:
        return _nothing_to_load(
            profile, f"{setting} and a GPU below {profile.variant.below} give a file name that does not exist", fix
        )
    major, minor = value[:_ORDINARY_DIGITS], value[_ORDINARY_DIGITS:]
    wanted = f"{major}.{minor}" if minor else major
    if wanted in versioned:
        return Loading(always=versioned[wanted], follows=profile.follows)
    return _nothing_to_load(profile, f"{setting}, and {_none_for(profile, versioned, wanted)}", fix)


def _nothing_to_load(profile: PackageProfile, why: str, fixes: Iterable[Fix]) -> Loading:
    return Loading(always=(), follows=profile.follows, missing=why, fixes=tuple(fixes))


def _none_for(profile: PackageProfile, versioned: Mapping[str, object], wanted: str) -> str:
    have = ", ".join(sorted(versioned, key=versions.key))
    error = f': "{profile.missing}"' if profile.missing else ""
    return f"its libraries are for CUDA {have}, none for {wanted}{error}"


def _stand_in(
    profile: PackageProfile, versioned: Mapping[str, tuple[str, ...]], cuda: str, machine: Machine, why: str
) -> Loading:
    """Another library of the same CUDA major does as well, if the package is made to take it."""
    same = [each for each in versioned if versions.major(each) == versions.major(cuda)]
    release = f"take a release that has a library for CUDA {cuda}"
    if not same:
        have = ", ".join(sorted(versioned, key=versions.key))
        other_framework = Fix(text=f"{profile.follows} for CUDA {have}", changes=("package",))
        return _nothing_to_load(profile, why, [Fix(text=release, changes=("release",)), other_framework])
    lower = [each for each in same if versions.at_least(cuda, each)]
    other = max(lower, key=versions.key) if lower else min(same, key=versions.key)
    ways = []
    if profile.override and (profile.override_keeps_variant or not _loads_variant(profile, machine)):
        text = f"set {profile.override}={digits(other)}, which loads the one for CUDA {other}"
        ways.append(Fix(text=text, changes=("variable",)))
    linked = f"in its folder: {link(versioned[other][0], other, cuda, machine)}"
    ways += [Fix(text=linked, changes=("file",)), Fix(text=release, changes=("release",))]
    return replace(_nothing_to_load(profile, why, ways), stand_in=versioned[other])


def link(path: str, cuda: str, wanted: str, machine: Machine) -> str:
    """The command that gives a library for one CUDA the name of one for another."""
    name = path.replace("\\", "/").rpartition("/")[2]
    make = "copy" if machine.os == "windows" else "ln -s"
    return f"{make} {name} {name.replace(digits(cuda), digits(versions.minor(wanted)), 1)}"


def digits(cuda: str) -> str:
    """The CUDA version as variables name it: 126 for 12.6."""
    return cuda.replace(".", "")
