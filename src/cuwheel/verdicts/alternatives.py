"""What would change a verdict: another driver, or the setting with which a package loads another of its libraries.

Between the drivers of the tables nothing changes but the number in the words, and among GPUs of a capability the name:
each step is judged with a number and a name of its own, and its words have `{driver}` and `{gpu}` in their place.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import packages, toolkits, versions
from cuwheel.support.finding import Finding
from cuwheel.verdicts import drivers, loading
from cuwheel.verdicts.check_rules.case import gpu_in_words
from cuwheel.verdicts.choice import CudaError
from cuwheel.verdicts.judge import Judge
from cuwheel.verdicts.predict import Outcome
from cuwheel.verdicts.verdict import ORDER, worst_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from cuwheel.device_code.libraries import Library, Survey, TorchExports
    from cuwheel.facts.rows.common import OperatingSystem
    from cuwheel.facts.rows.packages import PackageProfile
    from cuwheel.machine.fleet import Machine


# How a verdict changes with the driver: judged where it can change, so that it is known for every driver.

T = TypeVar("T")
DRIVER, GPU = "{driver}", "{gpu}"
_MARK = "7777777"  # in the words of a verdict nothing else looks like it
_PARTS = 3  # of a driver's number
_FIRST = "0"


class StepAnswer(Struct, frozen=True, kw_only=True):
    """What a verdict says, without the names of target and machine."""

    outcome: Outcome
    predicted_error: CudaError | None
    conditions: tuple[str, ...]
    findings: tuple[Finding, ...]


class DriverStep(Struct, frozen=True, kw_only=True):
    """`since`: the driver from which on it is so, until the next step; None: where the driver is not known."""

    since: str | None
    answer: StepAnswer


def driver_steps(judge: Judge, survey: Survey, machine: Machine, known: Collection[str] = ()) -> tuple[DriverStep, ...]:
    """`machine`: with a capability, and without a name for its GPU. `known`: where it changes, if that is known.

    The first step is for a driver that is not known. A Jetson's driver comes with its system: there is no other.
    """
    unknown = DriverStep(since=None, answer=_answer(judge, replace(machine, driver=None, driver_cuda=None)))
    if machine.runs_l4t:
        return (unknown,)
    found: dict[str, StepAnswer] = {}
    asked = functools.cache(
        lambda driver: _answer(judge, replace(machine, driver=_just_after(driver), driver_cuda=None))
    )
    for part in [[each] for each in known] or _parts(survey, machine):
        found |= by_halves(asked, part)
    steps = [DriverStep(since=since, answer=found[since]) for since in _sorted(found)]
    changes = [step for before, step in itertools.pairwise(steps) if step.answer != before.answer]
    return (unknown, steps[0], *changes)


def _answer(judge: Judge, machine: Machine) -> StepAnswer:
    verdict, gpu = judge.on(machine), gpu_in_words(machine)

    def words(text: str) -> str:
        text = text.replace(machine.driver, DRIVER) if machine.driver else text
        return text.replace(gpu, GPU)

    return StepAnswer(
        outcome=verdict.outcome,
        predicted_error=verdict.predicted_error,
        conditions=tuple(map(words, verdict.conditions)),
        findings=tuple(
            replace(each, message=words(each.message), fix=words(each.fix), evidence=()) for each in verdict.findings
        ),
    )


def by_halves(asked: Callable[[str], T], part: Sequence[str]) -> dict[str, T]:
    """The answers round every change: where the first and the last of some drivers give the same, all between do."""
    ends = {each: asked(each) for each in (part[0], part[-1])}
    if len(part) <= 2 or ends[part[0]] == ends[part[-1]]:  # noqa: PLR2004 - both were judged
        return ends
    middle = len(part) // 2
    return by_halves(asked, part[: middle + 1]) | by_halves(asked, part[middle:])


def _just_after(driver: str) -> str:
    """A number that comes right behind a driver's: `580` stands for a branch, and its first would be 580.0.0."""
    parts = driver.split(".")
    return ".".join([*parts, *["0"] * (_PARTS - len(parts)), _MARK])


def _parts(survey: Survey, machine: Machine) -> Iterator[Sequence[str]]:
    """Every driver of the tables, in parts within which none decides anything for these libraries."""
    systems = {machine.os} if machine.os else {drivers.system_of(each, machine) for each in survey.libraries}
    every = _sorted({_FIRST, *(each for on in systems for each in _everywhere(machine, on))})
    deciding = {_FIRST, *_deciding(survey, machine), every[-1]}
    starts = [index for index, each in enumerate(every) if each in deciding]
    for start, end in itertools.pairwise((*starts, len(every))):
        yield every[start:end]


def _everywhere(machine: Machine, on: OperatingSystem) -> Iterator[str]:
    """Every driver of the tables at which something changes for some library."""
    for row in toolkits.all_releases():
        named = (row.driver.on(on), toolkits.minor_compat_floor(row.major, on), toolkits.runtime_floor(row.version, on))
        yield from (each for each in named if each)
    if floor := toolkits.zstd_floor(on):
        yield floor
    yield from _of_gpu(machine)


def _of_gpu(machine: Machine) -> Iterator[str]:
    """The first branch that knows it, and the first that no longer does."""
    if support := drivers.support_of(machine):
        yield support.first
        yield from (support.dropped,) if support.dropped else ()


def _deciding(survey: Survey, machine: Machine) -> Iterator[str]:
    for library in survey.libraries:
        yield from (each for each in _deciding_for(library, machine) if each)
    yield from _of_gpu(machine)


def _deciding_for(library: Library, machine: Machine) -> Iterator[str | None]:
    """Its runtime's floor, and the drivers that came with the toolkits that wrote its code."""
    on = drivers.system_of(library, machine)
    yield drivers.floor_of(library, machine)
    yield toolkits.zstd_floor(on)
    for toolkit in library.toolkits:
        yield drivers.driver_for(toolkit, on)
    for isa in {row.ptx_isa for row in library.device_code if row.ptx_isa}:
        yield drivers.driver_for(drivers.cuda_of_isa(isa) or _FIRST, on)


def _sorted(found: set[str] | dict[str, StepAnswer]) -> list[str]:
    return sorted(found, key=versions.key)


# The setting with which a package loads the library that runs on a machine, where it would load another by itself.


class Pin(Struct, frozen=True, kw_only=True):
    """`cuda`: that of the library which the package then loads. `must`: without it the package does not run.

    `link`: the command that would do instead, in the package's folder.
    """

    package: str
    variable: str
    value: str
    cuda: str
    why: str
    must: bool
    link: str = ""

    @classmethod
    def of_lock(cls, variable: str, value: str) -> Pin:
        return cls(package="", variable=variable, value=value, cuda="", why="the lock says so", must=True)

    @property
    def setting(self) -> str:
        return f"{self.variable}={self.value}"

    def on(self, machine: Machine) -> Machine:
        """As it is with the setting."""
        return _with_variable(machine, self.variable, self.value)


def loading_variable(survey: Survey) -> str | None:
    """That by which somebody chooses what the package loads."""
    profile = loading.profile_of(survey)
    return profile.override if profile else None


def needed_pin(survey: Survey, machines: Sequence[Machine], torch: TorchExports | None = None) -> Pin | None:
    """The setting for all of these machines; None where the package does right by itself, or nothing would help.

    It is needed where what the package loads does not run, or not as well as another of its libraries. Where its
    library is for a newer CUDA than the driver, one that the driver was made for is taken: the newer one rests on
    minor-version compatibility, which leaves out PTX and linking at load.
    """
    profile = loading.profile_of(survey)
    follows = {loading.framework_cuda(profile, each) for each in machines} if profile else set()
    cuda = follows.pop() if len(follows) == 1 else None
    if profile is None or profile.override is None or cuda is None:
        return None
    trial = _Trial(profile, survey, machines, torch)
    same = [each for each in trial.there if versions.major(each) == versions.major(cuda)]
    best = min(same, key=lambda each: trial.place(each, cuda), default=None)
    plain = packages.best_version(profile, trial.there, cuda)
    if best is None or trial.outcome(best) == "fails":
        return None
    by_itself = trial.outcome(None) if plain else "fails"
    is_set = any(each.loads_by(profile.override) not in (None, loading.digits(best)) for each in machines)
    if best == plain and not (is_set and trial.outcome_as_set() != by_itself):
        return None
    return Pin(
        package=survey.distribution.name if survey.distribution else "",
        variable=profile.override,
        value=loading.digits(best),
        cuda=best,
        why=trial.why(plain, cuda, best),
        must=ORDER.index(by_itself) > ORDER.index(trial.outcome(best)),
        link=loading.link(trial.there[best][0], best, cuda, machines[0]) if best != plain else "",
    )


class _Trial:
    """Each library of a package on all machines."""

    def __init__(
        self, profile: PackageProfile, survey: Survey, machines: Sequence[Machine], torch: TorchExports | None
    ) -> None:
        self._profile, self._machines = profile, machines
        self._judge = Judge(survey, torch)
        self.there: Mapping[str, tuple[str, ...]] = loading.by_cuda(
            profile, [each.path for each in survey.libraries if loading.is_loadable(each)], machines[0]
        )
        known = [cuda for each in machines if (cuda := drivers.cuda_of_driver(each, each.os or "linux"))]
        self._driver = min(known, key=versions.key, default=None)

    def outcome(self, cuda: str | None) -> Outcome:
        """With the variable naming this library; None: without the variable."""
        value = loading.digits(cuda) if cuda else None
        override = self._profile.override or ""
        return worst_outcome(self._judge.on(_with_variable(each, override, value)).outcome for each in self._machines)

    def outcome_as_set(self) -> Outcome:
        return worst_outcome(self._judge.on(each).outcome for each in self._machines)

    def beyond(self, cuda: str) -> bool:
        """Whether a library is for a newer CUDA than the driver."""
        return self._driver is not None and not versions.at_least(self._driver, cuda)

    def place(self, cuda: str, wanted: str) -> tuple[object, ...]:
        """The lowest is the best: what runs best, within the driver, nearest below the framework's CUDA."""
        key = versions.key(cuda)
        lower = versions.at_least(wanted, cuda)
        near = tuple(-each if lower else each for each in (*key, 0, 0)[:2])  # 12.0 has no second part
        return ORDER.index(self.outcome(cuda)), self.beyond(cuda), not lower, near

    def why(self, plain: str | None, wanted: str, best: str) -> str:
        follows = self._profile.follows
        if plain is None:
            return f"{follows} is built for CUDA {wanted}, and the package has no library for that"
        if best == plain:
            return "the variable is set to a library that does not run here"
        if ORDER.index(self.outcome(plain)) > ORDER.index(self.outcome(best)):
            return f"its library for CUDA {plain}, which it would load, does not run as well here"
        return f"its library for CUDA {plain}, which it would load, is newer than the driver, made for {self._driver}"


def _with_variable(machine: Machine, variable: str, value: str | None) -> Machine:
    others = tuple(each for each in machine.loads if not each.startswith(f"{variable}="))
    return replace(machine, loads=(*others, f"{variable}={value}") if value is not None else others)
