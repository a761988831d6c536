"""How a verdict changes with the driver: judged where it can change, so that it is known for every driver.

Between the drivers of the tables nothing changes but the number in the words, and among GPUs of a capability the name:
each step is judged with a number and a name of its own, and its words have `{driver}` and `{gpu}` in their place.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.verdicts.check_rules.case import gpu_in_words
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import CudaError
from cuwheel_core.verdicts.condition import Condition
from cuwheel_core.verdicts.predict import Outcome

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.judge import Judge
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.facts.rows.common import OperatingSystem


T = TypeVar("T")
DRIVER, GPU = "{driver}", "{gpu}"
_MARK = "7777777"  # in the words of a verdict nothing else looks like it
_PARTS = 3  # of a driver's number
_FIRST = "0"


class StepAnswer(Struct, frozen=True, kw_only=True):
    """What a verdict says, without the names of target and machine."""

    outcome: Outcome
    predicted_error: CudaError | None
    requires: tuple[Condition, ...]
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
        requires=verdict.requires,
        findings=tuple(
            replace(
                each,
                says=words(each.says),
                fixes=tuple(replace(fix, text=words(fix.text)) for fix in each.fixes),
                evidence=(),
            )
            for each in verdict.findings
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
