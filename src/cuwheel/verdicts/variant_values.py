"""The values of NVIDIA's variant provider, the machines that they match, and a variant wheel that fails on one of them.

A machine is a capability and the CUDA of its driver. `NM_real` matches the devices N.x with x ≥ M, `N0_virtual` all
devices N.x, and a bound every driver of this CUDA or later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.facts.tables import tables
from cuwheel.support.finding import finding
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.verdicts import drivers

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.wheel.variant import Property, Variant
    from cuwheel_core.support.finding import Finding
    from cuwheel_core.verdicts.predict import Outcome


_VERSION = lazy_pattern(r"\d{1,4}(?:\.\d{1,4})?", re.ASCII)


class Value(Struct, frozen=True, kw_only=True):
    """A value of the provider's feature for architectures, and the known devices that it matches."""

    text: str
    real: bool
    devices: tuple[Capability, ...]

    @property
    def first(self) -> Capability:
        return self.devices[0]


def provider_cuda_versions() -> tuple[str, ...]:
    """The CUDA versions, oldest first, by which the provider tells drivers apart."""
    first, last = tables().variants.provider.cuda_majors
    return tuple(row.version for row in toolkits.all_releases() if first <= row.major <= last)


def provider_values(known: Sequence[Capability]) -> tuple[Value, ...]:
    """Every value that matches a known device: machine code first, then PTX, each from the oldest device on."""
    real = [
        Value(
            text=f"{each.number}_real",
            real=True,
            devices=tuple(one for one in known if one.major == each.major and one.minor >= each.minor),
        )
        for each in known
    ]
    majors = dict.fromkeys(each.major for each in known)
    virtual = [
        Value(text=f"{major}0_virtual", real=False, devices=tuple(one for one in known if one.major == major))
        for major in majors
    ]
    return (*real, *virtual)


def variant_matches(variant: Variant, capability: Capability | None, cuda: str | None) -> bool:
    """Whether an installer takes the variant on such a machine; what is not known of it (None) does not stop it.

    Of other providers than NVIDIA's nothing is known: there may be such a machine that has their values, too.
    """
    namespace = tables().variants.provider.namespace
    return all(_has(each, capability, cuda) for each in variant.properties if each.namespace == namespace)


def _has(wanted: Property, capability: Capability | None, cuda: str | None) -> bool:
    row = tables().variants.provider
    if wanted.feature == row.arch:
        return capability is None or not accepted_values(capability).isdisjoint(wanted.values)
    if wanted.feature not in (row.lower_bound, row.upper_bound):
        return False  # no machine has it
    bounds = [each for each in wanted.values if _VERSION.fullmatch(each)]
    if cuda is None:
        return bool(bounds)
    lower = wanted.feature == row.lower_bound
    return any(versions.at_least(cuda, each) == lower for each in bounds)


def accepted_values(capability: Capability) -> frozenset[str]:
    """What the provider says of a device."""
    first, last = tables().variants.provider.capability_majors
    if not first <= capability.major <= last:
        return frozenset()
    real = (Capability(capability.major, minor).number for minor in range(capability.minor + 1))
    return frozenset({*(f"{number}_real" for number in real), f"{capability.major}0_virtual"})


# Whether a variant wheel is for a machine by its own word, and fails on it.

FAILING: tuple[Outcome, ...] = ("partial", "fails")


def untrue_on(survey: Survey, machine: Machine, outcome: Outcome) -> Iterator[Finding]:
    """What a verdict has to say of it. Where the driver does not show the GPU, no installer takes a variant."""
    variant = survey.variant
    if variant is None or outcome not in FAILING or machine.capability is None:
        return
    on = machine.os or "linux"
    try:
        capability = Capability.parse(machine.capability)
    except UnknownNameError:
        return
    seen = drivers.gpu_state(machine, on) in ("known", "open")
    if seen and variant_matches(variant, capability, drivers.cuda_of_driver(machine, on)):
        how = "fails there" if outcome == "fails" else "runs there only in part"
        yield finding(
            "variant-untrue",
            f"the variant {variant.label} says that it is for this machine, and it {how}:"
            " installers that know variants take it",
            evidence=variant_in_words(variant),
        )


def variant_in_words(variant: Variant) -> tuple[str, ...]:
    """What it says, feature by feature."""
    return tuple(f"{each.namespace} {each.feature}: {' or '.join(each.values)}" for each in variant.properties)
