"""Several packages for one environment: one torch, one CUDA major, no library in two majors; and what they need set."""

from __future__ import annotations

import re
from dataclasses import fields
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from functools import reduce
from itertools import product
from operator import and_
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cuwheel.delivery import best_candidate, choosing
from cuwheel.delivery.choosing import Choice
from cuwheel.delivery.request import FindRequest, InstallRequest
from cuwheel.errors import UnknownNameError
from cuwheel.facts import packages, versions
from cuwheel.machine.fleet import Refinement
from cuwheel.support import log
from cuwheel.support.finding import Finding
from cuwheel.verdicts import alternatives, matrix
from cuwheel.verdicts.alternatives import Pin
from cuwheel.wheel import requirements
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.delivery.best_candidate import Found
    from cuwheel.delivery.judging import Ruling
    from cuwheel.machine.fleet import Machine
    from cuwheel.network.resolver import Release


# What has to be set for what is installed: by the torch that is there, or the one that comes with it.

_LOCAL = re.compile(r"\+cu(\d{2})(\d)\b", re.ASCII)
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit", re.ASCII)


class Settings(Struct, frozen=True, kw_only=True):
    """`variables`: every one that decides what these packages load; None for one that need not be set.

    `problems`: by package, why it does not go with the torch that would be installed.
    """

    pins: tuple[Pin, ...] = ()
    variables: dict[str, str | None] = {}
    problems: dict[str, str] = {}

    @property
    def needed(self) -> dict[str, str]:
        return {each.variable: each.value for each in self.pins}


def settings_for(choices: Sequence[Choice], releases: Sequence[Release]) -> Settings:
    """What to set for each package that is going to be installed, and what does not run even so."""
    found: list[Pin] = []
    variables: dict[str, str | None] = {}
    problems: dict[str, str] = {}
    for choice in choices:
        if choice.ruling is None or choice.ruling.survey is None:
            continue
        survey = choice.ruling.survey
        machines = machines_with_torch(choice.found.machines, releases)
        pin = alternatives.needed_pin(survey, machines)
        if variable := alternatives.loading_variable(survey):
            variables[variable] = pin.value if pin else None
        found += [pin] if pin else []
        for machine in machines:
            verdict = matrix.judge(survey, pin.on(machine) if pin else machine)
            if verdict.outcome == "fails":
                error = next((each for each in verdict.findings if each.severity == "error"), None)
                problems[choice.name] = f"{error.message}; {error.fix}" if error else "it does not run here"
    return Settings(pins=tuple(found), variables=variables, problems=problems)


def machines_with_torch(machines: Sequence[Machine], releases: Sequence[Release]) -> tuple[Machine, ...]:
    """As they are once these are installed."""
    torch = next((each for each in releases if normalised(each.name) == "torch"), None)
    if torch is None:
        return tuple(machines)
    cuda = torch_cuda(torch.version, {normalised(each.name): each.version for each in releases})
    return tuple(replace(each, torch=torch.version, torch_cuda=cuda) for each in machines)


def torch_cuda(version: str, others: Mapping[str, str]) -> str | None:
    """By its local version, else by the CUDA runtime that comes with it. `others`: name → version."""
    if match := _LOCAL.search(version):
        return f"{match[1]}.{match[2]}"
    runtime = next((each for name, each in others.items() if _RUNTIME.fullmatch(name)), None)
    return versions.minor(runtime) if runtime and "+" not in version else None


def setting_findings(settings: Settings, *, written: bool) -> tuple[Finding, ...]:
    """Of each setting: why, whether a link would do too, and where it was written."""
    return tuple(
        Finding(
            rule="library-pinned",
            severity="note" if written else "warning",
            message=f"with {each.setting} {each.package} loads its library for CUDA {each.cuda}, which runs here",
            evidence=tuple(_evidence_of_pin(each)),
            fix="" if written else "set it wherever the package is used, or have it written: --pin activate",
        )
        for each in settings.pins
    )


def _evidence_of_pin(pin: Pin) -> list[str]:
    link = f"a link would do too, until the package is next installed, and pip does not know it: {pin.link}"
    return [pin.why, *([link] if pin.link else [])]


_ATTEMPTS = 8  # releases of one package, where the newer ones do not go with the others
_TORCHES = 3
_TORCH = "torch"
_Prefix: TypeAlias = "Path | None"


class Together(Struct, frozen=True, kw_only=True):
    """`choices`: of the packages with CUDA code. `problem`: which two do not go together, and what to change."""

    choices: tuple[Choice, ...]
    problem: str = ""


class _Conflict(Struct, frozen=True, kw_only=True):
    """`torch`: what the new package wants of it, where that is what it is about."""

    text: str
    torch: SpecifierSet | None = None


def choose_together(request: InstallRequest, wanted: Sequence[str], prefix: _Prefix) -> Together:
    """torch first, then each in its order; where one does not go with those before it, an older release of it."""
    asked = {normalised(Requirement(each).name): each for each in wanted}
    found, conflict = _round(request, asked, prefix)
    for _ in range(_TORCHES):
        limits = _other_torch(request, asked, conflict, prefix) if conflict else None
        if limits is None:
            break
        log.info("trying %s", limits)
        asked[_TORCH] = limits
        found, conflict = _round(request, asked, prefix)
    return Together(choices=tuple(found), problem=conflict.text if conflict else "")


def with_required_torch(
    request: InstallRequest, choices: tuple[Choice, ...], new: Collection[str], prefix: _Prefix
) -> tuple[Choice, ...]:
    """A package, and the torch that would be installed with it, judged too: installers take the newest, which may
    need a newer driver, or have no code for the GPU. Without it where none is needed, or none runs.

    `new`: the names of what would be installed and is not there in any version.
    """
    if len(choices) != 1 or _TORCH not in new or choices[0].name == _TORCH:
        return choices
    if choices[0].ruling is None or choices[0].fallback in ("source build", "cpu build"):  # made for what there is
        return choices
    found = choose_together(with_fields(request, wheel_only=True), [_TORCH, choices[0].wanted], prefix)
    made = {each.name: each for each in found.choices if each.ruling}
    if found.problem or made.keys() != {choices[0].name, _TORCH}:
        return choices
    return made[choices[0].name], made[_TORCH]


def find_together(request: FindRequest) -> Found:
    """What `find` puts first; where that brings a torch along which does not run, what `install` takes in its place."""
    found = best_candidate.find(request)
    start = Choice(name=normalised(found.name), wanted=request.wanted, found=found, ruling=found.chosen)
    required = list(_torch_of(start))
    if not required or any(each.torch for each in found.machines):
        return found
    given = {each.name: getattr(request, each.name) for each in fields(FindRequest)}
    as_install = InstallRequest(**given, wheel_only=True, no_cpu=True)
    torch = Requirement(_TORCH)
    torch.specifier = reduce(and_, required)
    try:
        if choosing.choose(as_install, str(torch), request.env, shallow=True).is_made:
            return found
    except UnknownNameError:
        return found  # these indexes have no torch: it comes from elsewhere
    made, *others = with_required_torch(as_install, (start,), (_TORCH,), request.env)
    if not others:
        return found
    reason = f"it does not go with {_name_of(others[0])}, which runs there"
    judged = {each.candidate.file for each in made.found.rulings}
    passed = (each for each in found.rulings if each.candidate.file not in judged)
    rulings = (*made.found.rulings, *(replace(each, reasons=(reason,)) for each in passed))
    return replace(made.found, rulings=rulings, chosen=made.ruling, downloaded=found.downloaded + made.found.downloaded)


def _round(request: InstallRequest, asked: dict[str, str], prefix: _Prefix) -> tuple[list[Choice], _Conflict | None]:
    chosen: list[Choice] = []
    for name in sorted(asked, key=lambda each: each != _TORCH):  # stable: all others stay in their order
        answer = _fitting(_with_torch(request, chosen), asked[name], prefix, chosen)
        if isinstance(answer, _Conflict):
            return chosen, answer
        chosen += [answer] if answer else []
    return chosen, None


def _fitting(
    request: InstallRequest, wanted: str, prefix: _Prefix, chosen: Sequence[Choice]
) -> Choice | _Conflict | None:
    """None for a package without CUDA code, which is none of our business."""
    limits = Requirement(wanted)
    shallow = normalised(limits.name) != _TORCH  # which has builds for the CPU, and older ones for GPUs
    first: _Conflict | None = None
    for _ in range(_ATTEMPTS):
        try:
            choice = choosing.choose(request, str(limits), prefix, shallow=shallow)
        except UnknownNameError:
            return first  # pip may know better, and says what is missing
        if not choice.is_made:
            return first or (choice if _has_code(choice) else None)
        if not _has_code(choice) and not choice.build:
            return first
        conflict = next((each for other in chosen if (each := _between(other, choice))), None)
        if conflict is None:
            return replace(choice, wanted=wanted) if first is None else _older(choice, wanted, first)
        first = first or conflict
        if choice.ruling is None:
            return first
        limits.specifier &= SpecifierSet(f"!={choice.ruling.candidate.version}")
    return first


def _older(choice: Choice, wanted: str, conflict: _Conflict) -> Choice:
    return replace(choice, wanted=wanted, fallback=choice.fallback or "older version", why=conflict.text)


def _has_code(choice: Choice) -> bool:
    """Device code, or libraries of CUDA that it needs: in what is taken, else in any release of it."""
    rulings = (choice.ruling,) if choice.ruling else choice.found.rulings
    return any(each.device_code or each.needs for each in rulings)


def _with_torch(request: InstallRequest, chosen: Sequence[Choice]) -> InstallRequest:
    """The others are judged with the torch that was chosen for them."""
    torch = next((each.ruling for each in chosen if each.name == _TORCH and each.ruling), None)
    if torch is None:
        return request
    version = str(torch.candidate.version)
    refine = replace(request.refine or Refinement(), torch=version, torch_cuda=_cuda_of(torch))
    return with_fields(request, refine=refine)


def _cuda_of(torch: Ruling) -> str | None:
    exact: dict[str, str] = {}
    for each in filter(None, map(requirements.parse, torch.requires)):
        pins = [spec.version for spec in each.specifier if spec.operator == "=="]
        exact |= {normalised(each.name): pins[0]} if pins else {}
    return torch_cuda(str(torch.candidate.version), exact)


def _between(one: Choice, other: Choice) -> _Conflict | None:
    """What keeps two packages apart."""
    if one.ruling is None or other.ruling is None:
        return None
    for mine, theirs in product(one.ruling.needs, other.ruling.needs):
        if _differ(mine, theirs):
            majors = sorted(packages.find_library(mine).majors)
            return _Conflict(
                text=f"{_name_of(one)} needs {mine} and {_name_of(other)} needs {theirs}: "
                f"ask for a release of {other.name} for CUDA {majors[-1]}, or for another one of {one.name}"
            )
    return _about_torch(one, other)


def _differ(mine: str, theirs: str) -> bool:
    """The same library of two CUDA majors."""
    first, second = packages.known_library(mine), packages.known_library(theirs)
    if first is None or second is None or first.component != second.component:
        return False
    return not set(first.majors) & set(second.majors)


def _about_torch(one: Choice, other: Choice) -> _Conflict | None:
    for wanted in _torch_of(other):
        if one.name == _TORCH and one.ruling:
            if not wanted.contains(one.ruling.candidate.version, prereleases=True):
                text = f"{_name_of(other)} requires torch{wanted}, and {_name_of(one)} is taken: ask for torch{wanted}"
                return _Conflict(text=f"{text}, or for another release of {other.name}", torch=wanted)
            continue
        for mine in _torch_of(one):
            if _exclude(mine, wanted):
                text = f"{_name_of(one)} requires torch{mine} and {_name_of(other)} requires torch{wanted}"
                return _Conflict(text=f"{text}: ask for another release of {one.name} or of {other.name}")
    return None


def _torch_of(choice: Choice) -> Iterator[SpecifierSet]:
    for each in filter(None, map(requirements.parse, choice.ruling.requires if choice.ruling else ())):
        if normalised(each.name) == _TORCH and "extra" not in str(each.marker):
            yield each.specifier


def _exclude(mine: SpecifierSet, theirs: SpecifierSet) -> bool:
    """Whether an exact version of one is not allowed by the other; more is the resolver's business."""
    both = ((mine, theirs), (theirs, mine))
    return any(
        spec.operator == "==" and "*" not in spec.version and not other.contains(spec.version, prereleases=True)
        for one, other in both
        for spec in one
    )


def _name_of(choice: Choice) -> str:
    return f"{choice.name} {choice.ruling.candidate.version}" if choice.ruling else choice.name


def _other_torch(request: InstallRequest, asked: dict[str, str], conflict: _Conflict, prefix: _Prefix) -> str | None:
    """torch as the file asks for it and the package too, if there is one that runs."""
    if conflict.torch is None or _TORCH not in asked:
        return None
    limits = Requirement(asked[_TORCH])
    limits.specifier &= conflict.torch
    return str(limits) if choosing.choose(request, str(limits), prefix, shallow=True).is_made else None
