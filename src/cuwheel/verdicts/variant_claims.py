"""Whether a variant wheel is for a machine by its own word, and fails on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts.arch import Capability
from cuwheel.support.finding import Finding
from cuwheel.verdicts import drivers
from cuwheel.verdicts.variant_values import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.libraries import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.predict import Outcome
    from cuwheel.wheel.variant import Variant

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
    if seen and matches(variant, capability, drivers.cuda_of_driver(machine, on)):
        how = "fails there" if outcome == "fails" else "runs there only in part"
        yield Finding(
            rule="variant-untrue",
            severity="error",
            message=f"the variant {variant.label} says that it is for this machine, and it {how}:"
            " installers that know variants take it",
            evidence=words(variant),
            fix="write its variants anew from the plain wheel: cuwheel build --variants",
        )


def words(variant: Variant) -> tuple[str, ...]:
    """What it says, feature by feature."""
    return tuple(f"{each.namespace} {each.feature}: {' or '.join(each.values)}" for each in variant.properties)
