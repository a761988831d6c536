"""What `install` takes for a requirement: what `find` puts first, or in its place a fallback, tried in order.

Several packages go into one environment together: one torch, one CUDA major, no library in two majors; and some need a
variable set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields
from dataclasses import replace as with_fields  # noqa: TID251 - of its own dataclasses
from functools import reduce
from itertools import product
from operator import and_, attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.specifiers import SpecifierSet

from cuwheel.delivery import best_candidate, candidates, fleet_find, judging
from cuwheel.delivery.best_candidate import Choice
from cuwheel.delivery.candidates import Candidate, IndexFile
from cuwheel.delivery.install_answer import Passed, Way, initial_answer
from cuwheel.delivery.judging import CandidateJudge, Ruling
from cuwheel.delivery.request import FindRequest, InstallRequest
from cuwheel.device_code import wheel_facts
from cuwheel.facts import packages
from cuwheel.support import files, limited, log
from cuwheel.support.finding import finding
from cuwheel.verdicts import pins
from cuwheel.verdicts.judge import judge
from cuwheel.verdicts.pins import Pin
from cuwheel.wheel import requirements
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError, UnknownNameError
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.verdicts.condition import condition
from cuwheel_core.wheel.tags import WheelName, normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

    from cuwheel.delivery.best_candidate import Search
    from cuwheel.delivery.find_answer import Find
    from cuwheel.delivery.install_answer import Install
    from cuwheel.machine.fleet import Machine
    from cuwheel.network.resolver import Release
    from cuwheel_core.support.finding import Finding


_CPU_LABEL = "cpu"  # of a local version, as torch has it


def answer_of_choices(name: str, env: Path, choices: Sequence[Choice], **known: Any) -> Install:  # noqa: ANN401
    """Nothing was done yet; with all that was found. `known`: further fields."""
    return initial_answer(
        name,
        env,
        tuple(each.package for each in choices),
        machines=choices[0].machines if choices else (),
        candidates=tuple(file for each in choices for file in each.candidates),
        **known,
    )


def choose(search: Search, request: InstallRequest, wanted: Requirement, *, shallow: bool = False) -> Choice:
    """In the order of the fallbacks; each says why it was passed over. `shallow`: it may well have no device code."""
    found = best_candidate.find(search, wanted, shallow=shallow)
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    start = replace(found, name=normalised(found.name), wanted=str(wanted), requirement=wanted, taken=None)
    if made := _as_asked(start, request):
        return made
    passed: list[Passed] = []
    for way, look in _WAYS:
        answer = look(start, request, search)
        if isinstance(answer, Choice):
            return replace(answer, why=answer.why or _why_not_newest(start.rulings), passed=tuple(passed))
        passed.append(Passed(way=way, reason=answer))
    return replace(start, why=_why_not_newest(start.rulings), passed=tuple(passed))


def _as_asked(start: Choice, request: InstallRequest) -> Choice | None:
    """The best of what the requirement allows, unless it is the CPU's; an older release counts as a fallback."""
    newest = _newest(start.rulings)
    first = next(
        (each for each in _usable(start) if "older" in request.fallback or each.release == newest),
        None,
    )
    if first is None:
        return None
    if newest is None or first.release == newest:
        return replace(start, taken=first)
    return replace(start, taken=first, fallback="older version", why=_why_not_newest(start.rulings))


def _usable(found: Choice, *, for_cpu: bool = False) -> Iterator[Ruling]:
    """The best first."""
    return (each for each in found.rulings if each.rank.may_be_taken and _is_for_cpu(each, found) == for_cpu)


def _another_version(start: Choice, request: InstallRequest, search: Search) -> Choice | str:
    """Beyond what the requirement allows."""
    if not {"older", "any-version"} & set(request.fallback):
        return "not among --fallback"
    if not start.requirement.specifier:
        return "no release runs"
    found = best_candidate.find(search, limited.requirement(start.requirement.name))
    first = next(_usable(found), None)
    if first is None:
        return "no release runs, whatever its version"
    if "any-version" not in request.fallback:
        return f"{first.version} runs, but it is not {start.requirement.specifier}: --fallback any-version takes it"
    newest = _newest(start.rulings)
    newer = newest is None or first.release > newest
    return replace(_with_findings_of(start, found), taken=first, fallback="newer version" if newer else "older version")


def _with_findings_of(start: Choice, found: Choice) -> Choice:
    """The same requirement, with what another question found."""
    return replace(
        start,
        machines=found.machines,
        rulings=found.rulings,
        downloaded=found.downloaded,
        releases=found.releases,
        stopped=found.stopped,
    )


def _source_build(start: Choice, request: InstallRequest, search: Search) -> Choice | str:
    if "source" not in request.fallback:
        return "not among --fallback"
    sources = [each for each in start.rulings if each.candidate.wheel is None and not each.yanked]
    newest = _newest(start.rulings)
    if "older" not in request.fallback:
        sources = [each for each in sources if each.release == newest]
    if not sources:
        return "there is no source distribution"
    candidate = max(sources, key=attrgetter("release")).candidate
    machines = start.machines
    python = next((each.python for each in machines if each.python), None)
    if python is None:
        return "the version of Python is not known"
    from cuwheel.delivery import source_builds  # noqa: PLC0415 - all that builds: few installs need it

    try:
        plan = source_builds.foresee_build(candidate, machines, python)
        log.info(
            "building %s for %s with CUDA %s (%s), Python %s",
            plan.source, ", ".join(plan.archs), plan.cuda, plan.compiler or plan.toolkit, plan.python,
        )  # fmt: skip
        planned = replace(start, build=plan, fallback="source build")
        if request.dry_run:
            return planned
        wheel = source_builds.build_from_source(candidate, machines, python)
        ruling = _judged_file(wheel, machines, search)
    except CuwheelError as error:
        return error.message
    if not ruling.rank.may_be_taken:
        return f"what was built does not run: {'; '.join(ruling.reasons)}"
    return replace(planned, taken=ruling, rulings=(ruling, *start.rulings))


def _judged_file(wheel: Path, machines: Sequence[Machine], search: Search) -> Ruling:
    """A wheel on this machine, as `find` judges those of an index."""
    name = WheelName.parse(wheel.name)
    listing = IndexFile(file=wheel.name, url=wheel.as_uri(), sha256=files.sha256(wheel), size=wheel.stat().st_size)
    version = limited.version(name.release) if name else limited.version("0")
    candidate = Candidate(listing=listing, version=version, wheel=name, index=str(wheel.parent))
    ruler = CandidateJudge(machines, search.request.env, installed=True)
    return ruler.rule(Ruling.on(candidate), judging.read_wheel(candidate, search.session, search.budget, ruler))


def disagreement(choice: Choice, wheel: Path, prefix: Path) -> Finding | None:
    """What the file itself says, where it is not what the index's facts said when it was chosen.

    Facts spare the download of every candidate. Whoever can change them can make any wheel the best one, so what is
    installed is read once more, before it is.
    """
    by_facts = choice.taken
    if by_facts is None or not by_facts.is_to_be_read or choice.fallback == "source build":
        return None
    with WheelFile(wheel) as opened:
        facts = wheel_facts.of_wheel(opened, sha256=by_facts.candidate.listing.sha256)
    judging.keep_facts(by_facts.candidate, facts)  # in place of what may be wrong there
    ruler = CandidateJudge(choice.machines, prefix, installed=True)
    read = ruler.rule(Ruling.on(by_facts.candidate), judging.Contents(wheel_facts.survey(facts), "wheel"))
    compared = ("outcome", "rank", "reasons", "requirements", "device_code", "needs")
    if all(getattr(read, name) == getattr(by_facts, name) for name in compared):
        return None
    if by_facts.in_part and read.rank <= by_facts.rank:  # what was not read is no worse
        return None
    seen = {each: "; ".join(getattr(read, each)) for each in ("reasons", "requirements")}
    listed = {each: "; ".join(getattr(by_facts, each)) for each in ("reasons", "requirements")}
    told_by = "as much as was read of it before" if by_facts.in_part else f"its {by_facts.known_from}"
    differing = [f"{each}: {listed[each] or 'nothing'}; in the file: {seen[each] or 'nothing'}" for each in seen]
    return finding(
        "facts-contradict-file",
        f"{by_facts.candidate.file}: {read.outcome} here, where {told_by} says {by_facts.outcome}",
        evidence=(f"listed by {by_facts.candidate.index}", *differing),
    )


def _cpu_build(start: Choice, request: InstallRequest, search: Search) -> Choice | str:
    """A wheel without device code of the same package, or the package that its makers publish for the CPU."""
    if "cpu" not in request.fallback:
        return "not among --fallback"
    if first := next(_usable(start, for_cpu=True), None):
        return replace(start, taken=first, fallback="cpu build")
    other = packages.cpu_distribution(start.name)
    if other is None:
        return "no wheel without device code was found, and no package for the CPU is known"
    try:
        found = best_candidate.find(search, limited.requirement(f"{other}{start.requirement.specifier}"))
    except UnknownNameError as error:
        return error.message
    if found.taken is None:
        return f"{other} does not run either"
    made = replace(_with_findings_of(start, found), rulings=(*found.rulings, *start.rulings))
    return replace(made, name=other, taken=found.taken, fallback="cpu build")


_WAYS: tuple[tuple[Way, Callable[[Choice, InstallRequest, Search], Choice | str]], ...] = (
    ("another version", _another_version),
    ("source build", _source_build),
    ("cpu build", _cpu_build),
)


def _is_for_cpu(ruling: Ruling, found: Choice) -> bool:
    """Whether a wheel lacks the device code that others of its package have: a GPU would stay unused."""
    if not any(each.capability for each in found.machines) or ruling.device_code is not False:
        return False
    label = (ruling.candidate.version.local or "").split(".")[0]
    return label == _CPU_LABEL or any(each.device_code for each in found.rulings)


def _newest(rulings: Sequence[Ruling]) -> Version | None:
    return max((each.release for each in rulings if not each.yanked), default=None)


def _why_not_newest(rulings: Sequence[Ruling]) -> str:
    """Why the newest release is not taken: what speaks against the best of its files, one for GPUs if it has some."""
    newest = _newest(rulings)
    if newest is None:
        return "no file fits what was asked for"
    own = [each for each in rulings if each.release == newest and not each.yanked]
    wheels = [each for each in own if each.candidate.wheel] or own
    wheels.sort(key=lambda each: not each.device_code)
    return f"{newest}: {'; '.join(wheels[0].reasons[:2]) or wheels[0].outcome}"


# Several packages for one environment.

_ATTEMPTS = 8  # releases of one package, where the newer ones do not go with the others
_TORCHES = 3
_TORCH = "torch"


class Together(Struct, frozen=True, kw_only=True):
    """`choices`: of the packages with CUDA code. `problem`: which two do not go together, and what to change."""

    choices: tuple[Choice, ...]
    problem: str = ""


class _Conflict(Struct, frozen=True, kw_only=True):
    """`torch`: what the new package wants of it, where that is what it is about."""

    text: str
    torch: SpecifierSet | None = None


def choose_together(search: Search, request: InstallRequest, wanted: Sequence[str]) -> Together:
    """torch first, then each in its order; where one does not go with those before it, an older release of it."""
    asked = {normalised(limited.requirement(each).name): each for each in wanted}
    found, conflict = _round(search, request, asked)
    for _ in range(_TORCHES):
        limits = _other_torch(search, request, asked, conflict) if conflict else None
        if limits is None:
            break
        log.info("trying %s", limits)
        asked[_TORCH] = limits
        found, conflict = _round(search, request, asked)
    return Together(choices=tuple(found), problem=conflict.text if conflict else "")


def with_required_torch(
    search: Search, request: InstallRequest, choices: tuple[Choice, ...], new: Collection[str]
) -> tuple[Choice, ...]:
    """A package, and the torch that would be installed with it, judged too: installers take the newest, which may
    need a newer driver, or have no code for the GPU. Without it where none is needed, or none runs.

    `new`: the names of what would be installed and is not there in any version.
    """
    if len(choices) != 1 or _TORCH not in new or choices[0].name == _TORCH:
        return choices
    if choices[0].taken is None or choices[0].fallback in ("source build", "cpu build"):  # made for what there is
        return choices
    found = choose_together(search, with_fields(request, fallback=request.without_source), [_TORCH, choices[0].wanted])
    made = {each.name: each for each in found.choices if each.taken}
    if found.problem or made.keys() != {choices[0].name, _TORCH}:
        return choices
    return made[choices[0].name], made[_TORCH]


def find_together(request: FindRequest) -> Find:
    """What `find` puts first: of several machines for each kind of them, since no one file need serve all."""
    with best_candidate.search_for(request, request.env) as search:
        if len(search.machines) == 1 or not request.on:
            return _with_command(_find_one(search, request.requirement), request)
        kinds = fleet_find.kinds_of_machine(request)
        if len(kinds) == 1:
            return _with_command(_find_one(search, request.requirement), request)
        answers: list[tuple[list[str], Find]] = []
        for machines, names in kinds.items():
            answers.append((names, _find_one(search.on_machines(machines), request.requirement)))
            if answers[-1][1].stopped == "interrupted":
                break
        return fleet_find.combined(request, answers)


def _with_command(answer: Find, request: FindRequest) -> Find:
    """With the command that installs what is chosen, from the same places, for the same machine and environment."""
    chosen = next((each for each in answer.candidates if each.chosen), None)
    if chosen is None:
        return answer
    extras = f"[{','.join(answer.extras)}]" if answer.extras else ""
    wanted = f"{answer.name}{extras}=={chosen.version}"
    return replace(answer, install=("cuwheel", "install", wanted, *request.words_of_context))


def _find_one(search: Search, wanted: Requirement) -> Find:
    """For machines that one file has to serve. Where it brings a torch along which does not run, what `install` takes
    in its place.
    """
    before = search.budget.used
    found = best_candidate.find(search, wanted)
    if not found.rulings and found.stopped is None:
        raise candidates.no_such_release(wanted, search.places, search.session)
    start = replace(found, name=normalised(found.name), wanted=search.request.wanted, requirement=wanted)
    required = list(_torch_of(start))
    answer = found.answer
    if required and found.stopped != "interrupted" and not any(each.torch for each in found.machines):
        try:
            answer = replace(_with_its_torch(search, start, required), downloaded=search.budget.used - before)
        except UnknownNameError:
            pass  # these indexes have no torch: it comes from elsewhere
        except KeyboardInterrupt:
            used = search.budget.used - before
            answer = replace(_torch_not_judged(found), stopped="interrupted", downloaded=used)
    return replace(answer, name=found.name, extras=tuple(sorted(wanted.extras)))


def _with_its_torch(search: Search, start: Choice, required: Sequence[SpecifierSet]) -> Find:
    """`required`: what the release that comes first wants of torch."""
    given = {each.name: getattr(search.request, each.name) for each in fields(FindRequest) if each.init}
    as_install = InstallRequest(**given, fallback=("older",))
    torch = limited.requirement(_TORCH)
    torch.specifier = reduce(and_, required)
    chosen = choose(search, as_install, torch, shallow=True)
    if chosen.is_made:
        return start.answer
    if chosen.stopped:  # nobody knows that it does not run: no older release is better for that
        return replace(_torch_not_judged(start), stopped=chosen.stopped)
    made, *others = with_required_torch(search, as_install, (start,), (_TORCH,))
    if not others:
        return start.answer
    reason = f"it does not go with {_name_of(others[0])}, which runs there"
    judged = {each.file for each in made.rulings}
    passed = (each for each in start.rulings if each.file not in judged)
    return replace(made, rulings=(*made.rulings, *(replace(each, reasons=(reason,)) for each in passed))).answer


def _torch_not_judged(found: Choice) -> Find:
    why = condition("torch-not-judged")
    answer = found.answer
    told = (replace(each, requires=(*each.requires, why)) if each.chosen else each for each in answer.candidates)
    return replace(answer, candidates=tuple(told))


def _round(search: Search, request: InstallRequest, asked: dict[str, str]) -> tuple[list[Choice], _Conflict | None]:
    chosen: list[Choice] = []
    for name in sorted(asked, key=lambda each: each != _TORCH):  # stable: all others stay in their order
        answer = _fitting(_with_torch(search, chosen), request, asked[name], chosen)
        if isinstance(answer, _Conflict):
            return chosen, answer
        chosen += [answer] if answer else []
    return chosen, None


def _fitting(
    search: Search, request: InstallRequest, wanted: str, chosen: Sequence[Choice]
) -> Choice | _Conflict | None:
    """Chooses a package that fits those chosen, or says what conflicts; None for one without CUDA code."""
    limits = limited.requirement(wanted)
    shallow = normalised(limits.name) != _TORCH  # which has builds for the CPU, and older ones for GPUs
    first: _Conflict | None = None
    for _ in range(_ATTEMPTS):
        try:
            choice = choose(search, request, limits, shallow=shallow)
        except UnknownNameError:
            return first  # pip may know better, and says what is missing
        if not choice.is_made:
            return first or (choice if _has_code(choice) else None)
        if not _has_code(choice) and not choice.build:
            return first
        conflict = next((each for other in chosen if (each := _between(other, choice))), None)
        if conflict is None:
            if first:
                choice = replace(choice, fallback=choice.fallback or "older version", why=first.text)
            return replace(choice, wanted=wanted)
        first = first or conflict
        if choice.taken is None:
            return first
        limits = copy(limits)
        limits.specifier &= limited.specifiers(f"!={choice.taken.version}")
    return first


def _has_code(choice: Choice) -> bool:
    """Device code, or libraries of CUDA that it needs: in what is taken, else in any release of it."""
    rulings = (choice.taken,) if choice.taken else choice.rulings
    return any(each.device_code or each.needs for each in rulings)


def _with_torch(search: Search, chosen: Sequence[Choice]) -> Search:
    """The others are judged with the torch that was chosen for them."""
    torch = next((each.taken for each in chosen if each.name == _TORCH and each.taken), None)
    if torch is None:
        return search
    exact: dict[str, str] = {}
    for each in filter(None, map(requirements.parse, torch.requirements)):
        pins = [spec.version for spec in each.specifier if spec.operator == "=="]
        exact |= {normalised(each.name): pins[0]} if pins else {}
    version = str(torch.candidate.version)
    return search.with_torch(version, torch_cuda(version, exact))


def _between(one: Choice, other: Choice) -> _Conflict | None:
    """What keeps two packages apart."""
    if one.taken is None or other.taken is None:
        return None
    for mine, theirs in product(one.taken.needs, other.taken.needs):
        if _differ(mine, theirs):
            majors = sorted(cuda_libraries.find_library(mine).majors)
            return _Conflict(
                text=f"{_name_of(one)} needs {mine} and {_name_of(other)} needs {theirs}: "
                f"ask for a release of {other.name} for CUDA {majors[-1]}, or for another one of {one.name}"
            )
    return _about_torch(one, other)


def _differ(mine: str, theirs: str) -> bool:
    """The same library of two CUDA majors."""
    first, second = cuda_libraries.known_library(mine), cuda_libraries.known_library(theirs)
    if first is None or second is None or first.component != second.component:
        return False
    return not set(first.majors) & set(second.majors)


def _about_torch(one: Choice, other: Choice) -> _Conflict | None:
    for wanted in _torch_of(other):
        if one.name == _TORCH and one.taken:
            if not wanted.contains(one.taken.candidate.version, prereleases=True):
                text = f"{_name_of(other)} requires torch{wanted}, and {_name_of(one)} is taken: ask for torch{wanted}"
                return _Conflict(text=f"{text}, or for another release of {other.name}", torch=wanted)
            continue
        for mine in _torch_of(one):
            if _exclude(mine, wanted):
                text = f"{_name_of(one)} requires torch{mine} and {_name_of(other)} requires torch{wanted}"
                return _Conflict(text=f"{text}: ask for another release of {one.name} or of {other.name}")
    return None


def _torch_of(choice: Choice) -> Iterator[SpecifierSet]:
    for each in filter(None, map(requirements.parse, choice.taken.requirements if choice.taken else ())):
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
    return f"{choice.name} {choice.taken.version}" if choice.taken else choice.name


def _other_torch(search: Search, request: InstallRequest, asked: dict[str, str], conflict: _Conflict) -> str | None:
    """torch as the file asks for it and the package too, if there is one that runs."""
    if conflict.torch is None or _TORCH not in asked:
        return None
    limits = limited.requirement(asked[_TORCH])
    limits.specifier &= conflict.torch
    return str(limits) if choose(search, request, limits, shallow=True).is_made else None


# What has to be set for what is installed: by the torch that is there, or the one that comes with it.

_LOCAL = re.compile(r"\+cu(\d{2})(\d)\b", re.ASCII)
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit", re.ASCII)


class PackageSettings(Struct, frozen=True, kw_only=True):
    """`variables`: every one that decides what these packages load; None for one that need not be set.

    `problems`: by package, why it does not go with the torch that would be installed.
    """

    pins: tuple[Pin, ...] = ()
    variables: dict[str, str | None] = {}
    problems: dict[str, str] = {}

    @property
    def needed(self) -> dict[str, str]:
        return {each.variable: each.value for each in self.pins}


def settings_for(choices: Sequence[Choice], releases: Sequence[Release]) -> PackageSettings:
    """What to set for each package that is going to be installed, and what does not run even so."""
    found: list[Pin] = []
    variables: dict[str, str | None] = {}
    problems: dict[str, str] = {}
    for choice in choices:
        if choice.taken is None or choice.taken.survey is None:
            continue
        survey = choice.taken.survey
        machines = machines_with_torch(choice.machines, releases)
        pin = pins.needed_pin(survey, machines)
        if variable := pins.loading_variable(survey):
            variables[variable] = pin.value if pin else None
        found += [pin] if pin else []
        for machine in machines:
            verdict = judge(survey, pin.on(machine) if pin else machine)
            if verdict.outcome == "fails":
                error = next((each for each in verdict.findings if each.severity == "error"), None)
                problems[choice.name] = f"{error.message}; {error.fix}" if error else "it does not run here"
    return PackageSettings(pins=tuple(found), variables=variables, problems=problems)


def machines_with_torch(machines: Sequence[Machine], releases: Sequence[Release]) -> tuple[Machine, ...]:
    """The machines as they are once these are installed."""
    torch = next((each for each in releases if normalised(each.name) == "torch"), None)
    if torch is None:
        return tuple(machines)
    cuda = torch_cuda(torch.version, {normalised(each.name): each.version for each in releases})
    return tuple(replace(each, torch=torch.version, torch_cuda=cuda) for each in machines)


def torch_cuda(version: str, others: Mapping[str, str]) -> str | None:
    """The CUDA of a torch, by its local version, else by the runtime that comes with it. `others`: name → version."""
    if match := _LOCAL.search(version):
        return f"{match[1]}.{match[2]}"
    runtime = next((each for name, each in others.items() if _RUNTIME.fullmatch(name)), None)
    return versions.minor(runtime) if runtime and "+" not in version else None


def setting_findings(settings: PackageSettings, *, written: bool) -> tuple[Finding, ...]:
    """For each setting why, whether a link would do too, and where it was written."""
    return tuple(
        finding(
            "library-pinned",
            f"with {each.setting} {each.package} loads its library for CUDA {each.cuda}, which runs here",
            evidence=tuple(_evidence_of_pin(each)),
            fix="" if written else "set it wherever the package is used, or have it written: --pin activate",
            severity="note" if written else "warning",
        )
        for each in settings.pins
    )


def _evidence_of_pin(pin: Pin) -> list[str]:
    link = f"a link would do too, until the package is next installed, and pip does not know it: {pin.link}"
    return [pin.why, *([link] if pin.link else [])]
