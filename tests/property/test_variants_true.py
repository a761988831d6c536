"""No variant ever matches a machine that `check` says the wheel fails on, whatever code is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.changes.stamp import variants
from cuwheel.facts.tables import tables
from cuwheel.verdicts import judge, variant_reach, variant_values
from cuwheel.wheel.variant import Variant, is_label
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.verdicts.predict import GOOD
from tests.unit.verdicts.subjects import library, survey

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel_core.device_code.libraries import Compression
    from cuwheel_core.facts.arch import Capability

TAGS = (
    "cp312-cp312-manylinux_2_28_x86_64",
    "cp312-cp312-manylinux_2_28_aarch64",
    "cp312-cp312-win_amd64",
    "py3-none-any",
)
RELEASES = [row for row in toolkits.all_toolkits() if row.major >= tables().variants.provider.cuda_majors[0]]


def accepted(capability: Capability) -> set[str]:
    """What the provider says of a device, as variants.toml has it."""
    real = {f"{capability.major}{minor}_real" for minor in range(capability.minor + 1)}
    return {*real, f"{capability.major}0_virtual"}


@st.composite
def wheels(draw: st.DrawFn) -> Survey:
    release, tag = draw(st.sampled_from(RELEASES)), draw(st.sampled_from(TAGS))
    words = [f"sm_{each}" for each in release.architectures]
    words += [f"compute_{each}@{release.ptx_isa}" for each in release.architectures]
    containers = draw(st.lists(st.lists(st.sampled_from(words), min_size=1, max_size=5), min_size=1, max_size=3))
    texts = [" ".join(dict.fromkeys(each)) for each in containers]
    linked = draw(st.booleans())
    objects = tuple(texts) if linked and draw(st.booleans()) else ()
    compression: Compression = draw(st.sampled_from(["none", "lz4", "zstd"]))
    arm = tag.endswith("aarch64")
    made = library(
        *(() if linked else texts),
        linked=tuple(texts[:1]) if linked else (),
        objects=objects,
        cuda=release.major,
        runtime=draw(st.booleans()),
        compression=compression,
        toolkits=(release.version,),
        machine="aarch64" if arm else "x86_64",
        platform=draw(st.sampled_from([None, "sbsa", "l4t"])) if arm else None,
    )
    return survey(made, tags=(tag,))


@settings(max_examples=60, deadline=None)
@given(wheels())
def test_whatever_a_variant_matches_is_served(found: Survey) -> None:
    subject = judge.Judge(found)
    row = tables().variants.provider
    for variant in variants.decide(found).variants:
        said = {each.feature: each.values for each in variant.properties}
        for capability in variant_reach.devices(found):
            for cuda in variant_values.provider_cuda_versions():
                matches = any(versions.at_least(cuda, each) for each in said[row.lower_bound])
                if matches and accepted(capability) & set(said[row.arch]):
                    verdict = subject.on(variant_reach.machine(found, capability, cuda))
                    assert verdict.outcome in GOOD, (variant, capability, cuda, verdict.outcome)


@settings(max_examples=15, deadline=None)
@given(wheels())
def test_every_value_that_is_true_is_said_or_follows_from_those_that_are(found: Survey) -> None:
    """By trying every value with every driver, and not by halves."""
    reach = variant_reach.VariantReach(found)
    made = variant_reach.claims(reach.served(), reach.devices)
    promised = min(versions.major(each) for each in found.libraries[0].toolkits)
    for value in variant_values.provider_values(reach.devices):
        for cuda in variant_values.provider_cuda_versions():
            how = [reach.outcome(each, cuda) for each in value.devices]
            true = all(each in GOOD and not (value.real and each == "jit") for each in how)
            if true and versions.major(cuda) >= promised:
                said = [each for each in made if versions.at_least(cuda, each.since)]
                assert any(each.devices.issuperset(value.devices) for each in said), (value.text, cuda, made)


def test_a_label_says_all_that_its_variant_does() -> None:
    """So that two wheels of one release never give one label two meanings."""
    meanings: dict[str, Variant] = {}

    @settings(max_examples=60, deadline=None)
    @given(wheels())
    def gather(found: Survey) -> None:
        for variant in variants.decide(found).variants:
            assert is_label(variant.label)
            assert meanings.setdefault(variant.label, variant) == variant

    gather()
    assert meanings
