"""What `check` says of a wheel, worked out for every kind of machine that the page offers.

The page only looks it up: a verdict is one of `compat`'s, made when the wheel was published.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code import wheel_facts
from cuwheel.facts import packages
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts import check_rules, driver_steps, wheel_tags
from cuwheel.verdicts.judge import Judge
from cuwheel.verdicts.loading import loading, profile_of
from cuwheel_core.facts import cuda_libraries, gpus, toolkits, versions
from cuwheel_core.fix import in_words
from cuwheel_core.verdicts.device import System

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.device_code.wheel_facts import WheelFacts
    from cuwheel.verdicts.driver_steps import StepAnswer
    from cuwheel_core.facts.arch import Capability

T = TypeVar("T", bound="Hashable")
# The driver from which on a verdict holds (empty: the driver is not known), and its index into `verdicts`.
Steps: TypeAlias = tuple[tuple[str, int], ...]


class Place(Struct, frozen=True):
    """A system that a wheel can be for."""

    key: str
    words: str
    os: System
    cpu: str

    @property
    def machine(self) -> Machine:
        return Machine(name=self.key, capability=None, os=self.os, cpu=self.cpu)


class Reason(Struct, frozen=True, omit_defaults=True):
    """A finding of a verdict; `{driver}` and `{gpu}` stand for those that were asked about."""

    severity: str
    rule: str
    message: str
    fix: str = ""


class ShownVerdict(Struct, frozen=True, omit_defaults=True):
    """A verdict. `conditions`, `reasons`: indices into `texts` and `reasons`."""

    outcome: str
    error: str | None = None
    conditions: tuple[int, ...] = ()
    reasons: tuple[int, ...] = ()


class OnPlace(Struct, frozen=True, omit_defaults=True):
    """`refused`: by Python, why an installer does not take it there. `python`: which it is for, in words.

    `torch`: by the CUDA that torch is built for (empty: not known), an index into `tables`. A table has an index into
    `steps` for each capability.
    """

    torch: dict[str, int]
    tables: tuple[dict[str, int], ...]
    refused: dict[str, str] = {}
    python: str = ""


class Verdicts(Struct, frozen=True, omit_defaults=True):
    """By system; `refused`: why an installer does not take the wheel there."""

    places: dict[str, OnPlace]
    refused: dict[str, str]
    steps: tuple[Steps, ...]
    verdicts: tuple[ShownVerdict, ...]
    reasons: tuple[Reason, ...]
    texts: tuple[str, ...]


PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))
PLACES = (
    Place("linux-x86_64", "Linux, x86-64", "linux", "x86_64"),
    Place("linux-aarch64", "Linux, arm64", "linux", "aarch64"),
    Place("windows-x86_64", "Windows, x86-64", "windows", "x86_64"),
)


def verdicts_of_wheel(facts: WheelFacts) -> Verdicts:
    """The same for wheels that are alike but for their names and versions, unless a package is known by them."""
    described = packages.find_profile(facts.name) is not None
    names = {} if described else {"name": "", "version": ""}
    return _of(replace(facts, file="", sha256="", size=0, description=None, **names))


@lru_cache(maxsize=32)
def _of(facts: WheelFacts) -> Verdicts:
    sweep = _Sweep(wheel_facts.survey(facts))
    refusals = {place.key: _refusal(facts.tags, place.machine) for place in PLACES}
    return Verdicts(
        places={place.key: sweep.on(place, facts.tags) for place in PLACES if not refusals[place.key]},
        refused={key: why for key, why in refusals.items() if why},
        steps=tuple(sweep.steps),
        verdicts=tuple(sweep.verdicts),
        reasons=tuple(sweep.reasons),
        texts=tuple(sweep.texts),
    )


def _refusal(listed: Sequence[str], machine: Machine) -> str:
    """Why no installer takes it there; empty where one does."""
    found = wheel_tags.fits_on_machine(listed, machine)
    return " and ".join(found[0].problems) if found else ""


@cache
def capabilities(place: Place) -> tuple[Capability, ...]:
    """The capabilities of the GPUs that such a system can have: Tegras are part of theirs."""
    known = gpus.current_capabilities()
    return tuple(each for each in known if not gpus.is_tegra(each) or place.cpu == "aarch64")


@cache
def torch_cudas() -> tuple[str, ...]:
    """What a torch may be built for, the newest first."""
    return tuple(row.version for row in reversed(toolkits.all_toolkits()))


class _Sweep:
    """Judges a wheel on all of them; each row of steps, verdict, reason and text is kept once."""

    def __init__(self, survey: Survey) -> None:
        self._survey, self._judge = survey, Judge(survey)
        self._changes: dict[str, tuple[str, ...]] = {}
        self.steps: dict[Steps, int] = {}
        self.verdicts: dict[ShownVerdict, int] = {}
        self.reasons: dict[Reason, int] = {}
        self.texts: dict[str, int] = {}

    def on(self, place: Place, listed: Sequence[str]) -> OnPlace:
        refusals = {each: _refusal(listed, replace(place.machine, python=each)) for each in PYTHONS}
        pythons = [each for each, why in refusals.items() if not why]
        tables: dict[str, dict[str, int]] = {}
        torch: dict[str, str] = {}
        for cuda in ("", *torch_cudas()):
            torch[cuda] = kind = self._kind(place, cuda)
            if kind not in tables:
                tables[kind] = self._table(place, cuda, pythons)
        distinct = list({tuple(table.items()): table for table in tables.values()}.values())
        fits = wheel_tags.fits_on_machine(listed, replace(place.machine, glibc="0"))
        words = fits[0].conditions[0].text if fits and fits[0].conditions else ""
        return OnPlace(
            refused={each: why for each, why in refusals.items() if why},
            python=words,
            torch={cuda: distinct.index(tables[kind]) for cuda, kind in torch.items()},
            tables=tuple(distinct),
        )

    def _kind(self, place: Place, cuda: str) -> str:
        """What of torch's CUDA this wheel goes by: its major, and the library that is loaded for it."""
        load = loading(self._survey, replace(place.machine, torch_cuda=cuda or None))
        major = versions.major(cuda) if cuda and self._comes_with_torch else ""
        return f"{major} {load.missing} {in_words(load.fixes)} {' '.join(load.always)}"

    @cached_property
    def _comes_with_torch(self) -> bool:
        """Whether a library needs something that a torch brings."""
        needed = {soname for each in self._survey.libraries for soname in each.needed}
        return any(cuda_libraries.known_library(each) or packages.framework_of(each) for each in needed)

    def _table(self, place: Place, cuda: str, pythons: Sequence[str]) -> dict[str, int]:
        machine = replace(place.machine, torch_cuda=cuda or None, python=pythons[-1] if pythons else None)
        return {str(each): _number(self.steps, self._row(_with_gpu(machine, each))) for each in capabilities(place)}

    def _row(self, machine: Machine) -> Steps:
        """What a driver changes has nothing to do with torch, unless that chooses the library."""
        key = f"{machine.os} {machine.cpu} {machine.capability}"
        known = () if profile_of(self._survey) else self._changes.get(key, ())
        steps = driver_steps.driver_steps(self._judge, self._survey, machine, known)
        self._changes[key] = tuple(step.since for step in steps if step.since)
        return tuple((step.since or "", self._verdict(step.answer)) for step in steps)

    def _verdict(self, answer: StepAnswer) -> int:
        found = answer.predicted_error
        reasons = (
            each for each in answer.findings if each.severity != "note" or each.rule in check_rules.STARTS_SLOWLY
        )
        shown = ShownVerdict(
            outcome=answer.outcome,
            error=f"{found.code} ({found.name})" if found else None,
            conditions=tuple(_number(self.texts, each.text) for each in answer.requires),
            reasons=tuple(
                _number(self.reasons, Reason(each.severity, each.rule, each.message, each.fix)) for each in reasons
            ),
        )
        return _number(self.verdicts, shown)


def _with_gpu(machine: Machine, capability: Capability) -> Machine:
    return replace(machine, capability=capability, tegra=gpus.is_tegra(capability))


def _number(numbered: dict[T, int], item: T) -> int:
    return numbered.setdefault(item, len(numbered))
