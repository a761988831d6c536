"""A variant wheel (PEP 825): its label in the name and inside, and whether what it says is true of its device code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.support.wording import a_few
from cuwheel.verdicts import variant_reach, variant_values
from cuwheel.verdicts.rule import Found, rule
from cuwheel.wheel import variant as variants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.verdicts.wheel_tags import WheelSubject

_SOURCE = "PEP 825 (draft), wheel variants"
_FIX = "write its variants anew from the plain wheel: cuwheel build --variants"
_SHOWN = 6


@rule(
    "variant-differs",
    severity="error",
    why="""The label of a variant is in the name of the file and in variant.json inside, and must be the same:
    installers that know variants go by both.""",
    source=_SOURCE,
    fix=_FIX,
)
def differs(subject: WheelSubject) -> Iterator[Found]:
    named = subject.wheel.name.variant if subject.wheel.name else None
    has_file = subject.wheel.info + variants.FILE in subject.wheel.members
    inside = subject.survey.variant.label if subject.survey.variant else None
    if named and not variants.is_label(named):
        yield Found(message=f"{named!r} in its name is no label: digits, small letters, _ and . are allowed")
    elif named and not has_file:
        yield Found(message=f"its name has the label {named}, and it has no {variants.FILE}")
    elif inside and named is None:
        yield Found(message=f"it says that it is the variant {inside}, and its name has no label", severity="warning")
    elif inside and inside != named:
        yield Found(message=f"its name has the label {named}, and its {variants.FILE} has {inside}")


@rule(
    "variant-untrue",
    severity="error",
    why="""A variant says which machines a wheel is for, and installers that know variants believe it. This one also
    matches machines on which the wheel does not run: GPUs that its device code does not serve, or drivers that are too
    old.""",
    source=f"{_SOURCE}; nvidia-variant-provider, get_supported_configs; docs/variants.md",
    fix=_FIX,
)
def untrue(subject: WheelSubject) -> Iterator[Found]:
    variant = subject.survey.variant
    if variant is None:
        return
    if found := variant_reach.untrue(subject.survey, variant):
        gpus = a_few([str(each.capability) for each in found], _SHOWN)
        yield Found(
            message=f"the variant {variant.label} says that it is for GPUs on which it does not run: {gpus}",
            evidence=(
                *variant_values.variant_in_words(variant),
                *(f"{each.capability}, a driver of CUDA {each.cuda}: {each.outcome}" for each in found[:_SHOWN]),
            ),
        )


RULES = (differs, untrue)
