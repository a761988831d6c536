"""Which machines a wheel serves, as far as the values of NVIDIA's variant provider can tell machines apart.

A value is true of a wheel only if the wheel serves every machine that the value matches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts.tables import tables
from cuwheel.machine import fleet
from cuwheel.verdicts.judge import Judge
from cuwheel.verdicts.variant_values import FAILING, Value, provider_cuda_versions, provider_values, variant_matches
from cuwheel_core.facts import gpus, versions
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.predict import GOOD, Outcome
from cuwheel_core.wheel.tags import platform_of

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.wheel.variant import Variant


class Served(Struct, frozen=True, kw_only=True):
    """A capability that the wheel serves with every driver of this CUDA or later."""

    capability: Capability
    outcome: Outcome
    since: str


class Claim(Struct, frozen=True, kw_only=True):
    """What a variant says: devices, by values, with a driver of this CUDA or later."""

    since: str
    values: tuple[Value, ...]

    @property
    def devices(self) -> frozenset[Capability]:
        return frozenset(device for value in self.values for device in value.devices)


def devices(survey: Survey) -> tuple[Capability, ...]:
    """The known capabilities that machines have which installers would put this wheel on."""
    where = [platform_of(tag) for tag in survey.distribution.tags] if survey.distribution else []
    arm = not where or any(each.cpu in (None, "aarch64") and each.os in (None, "linux") for each in where)
    first, last = tables().variants.provider.capability_majors
    return tuple(
        each for each in gpus.current_capabilities() if first <= each.major <= last and (arm or not gpus.is_tegra(each))
    )


def machine(survey: Survey, capability: Capability, cuda: str) -> Machine:
    """One whose driver shows its GPU: elsewhere an installer sees no GPU either."""
    found = replace(fleet.from_gpu(str(capability)), driver_cuda=cuda, gpu_seen=True)
    where = platform_of(survey.distribution.tags[0]) if survey.distribution else None
    if where is None or found.runs_l4t:
        return found
    return replace(found, os=where.os, cpu=where.cpu)


class VariantReach:
    """What a target serves; nothing is judged twice."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.devices = devices(survey)
        self._judge = Judge(survey)
        self._outcomes: dict[tuple[Capability, str], Outcome] = {}

    def outcome(self, capability: Capability, cuda: str) -> Outcome:
        key = capability, cuda
        if key not in self._outcomes:
            self._outcomes[key] = self._judge.on(machine(self.survey, capability, cuda)).outcome
        return self._outcomes[key]

    def serves(self, capability: Capability, cuda: str) -> bool:
        return self.outcome(capability, cuda) in GOOD

    def served(self) -> tuple[Served, ...]:
        known = provider_cuda_versions()
        lowest = bisect_left(known, versions.key(_oldest_promised(self.survey)), key=versions.key)
        return tuple(found for each in self.devices if (found := self._served(each, known[lowest:])))

    def _served(self, capability: Capability, known: Sequence[str]) -> Served | None:
        """A newer driver runs all that an older one does, so that the oldest that will do is searched for by halves."""
        if not known or not self.serves(capability, known[-1]):
            return None
        since = known[bisect_left(known, True, key=lambda cuda: self.serves(capability, cuda))]  # noqa: FBT003
        return Served(capability=capability, outcome=self.outcome(capability, known[-1]), since=since)


def _oldest_promised(survey: Survey) -> str:
    """The first release of the oldest major that wrote its code: nobody promises that an older driver runs it."""
    majors = [drivers.cuda_major(each) for each in survey.libraries if each.device_code]
    return f"{min(each for each in majors if each is not None)}.0" if any(majors) else provider_cuda_versions()[0]


def claims(served: Iterable[Served], known: Sequence[Capability]) -> tuple[Claim, ...]:
    """What is true of a wheel, in as few claims as say all of it: one for each CUDA from which more devices are served.

    Of its values one is left out that matches no further device, unless the wheel has machine code for exactly this
    architecture: an installer takes the wheel with the nearest.
    """
    found: list[Claim] = []
    by_device = {each.capability: each for each in served}
    for since in sorted({each.since for each in by_device.values()}, key=versions.key):
        now = {device: each for device, each in by_device.items() if versions.at_least(since, each.since)}
        claim = Claim(since=since, values=tuple(_true_of(now, known)))
        if claim.values and (not found or claim.devices > found[-1].devices):
            found.append(claim)
    return tuple(found)


def _true_of(served: dict[Capability, Served], known: Sequence[Capability]) -> Iterable[Value]:
    covered: set[Capability] = set()
    for value in provider_values(known):
        how = [served[each].outcome for each in value.devices if each in served]
        if len(how) < len(value.devices) or (value.real and "jit" in how):
            continue
        if not covered.issuperset(value.devices) or (value.real and how[0] == "native"):
            covered.update(value.devices)
            yield value


def unsaid(served: Iterable[Served], made: Iterable[Claim]) -> tuple[Served, ...]:
    """The devices that the wheel serves and no claim of it matches."""
    claimed = frozenset(device for claim in made for device in claim.devices)
    return tuple(each for each in served if each.capability not in claimed)


class Untrue(Struct, frozen=True, kw_only=True):
    """A machine that a variant matches, and on which the wheel does not run."""

    capability: Capability
    cuda: str
    outcome: Outcome


def untrue(survey: Survey, variant: Variant) -> tuple[Untrue, ...]:
    """Finds devices that a variant wrongly claims, by the oldest and newest driver it allows: others are between."""
    reach = VariantReach(survey)
    found = []
    for capability in reach.devices:
        allowed = [cuda for cuda in provider_cuda_versions() if variant_matches(variant, capability, cuda)]
        for cuda in dict.fromkeys((allowed[0], allowed[-1]) if allowed else ()):
            outcome = reach.outcome(capability, cuda)
            if outcome in FAILING:
                found.append(Untrue(capability=capability, cuda=cuda, outcome=outcome))
                break
    return tuple(found)
