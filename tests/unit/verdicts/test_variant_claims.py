"""What a variant matches, and that one which matches a machine where its wheel fails is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Refinement
from cuwheel.verdicts import variant_reach, variant_values
from cuwheel.wheel.variant import Property, Variant
from cuwheel_core.facts.arch import Capability
from tests.fixtures.variant_wheels import labelled, plain, says

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("archs", "capability", "expected"),
    [
        (("90_real",), "9.0", True),
        (("80_real",), "8.9", True),
        (("86_real",), "8.0", False),
        (("80_real",), "9.0", False),
        (("90_virtual",), "9.0", True),
        (("75_virtual",), "7.5", False),  # as uv has it: of PTX only N0_virtual is ever matched
        (("80_virtual",), "9.0", False),
        (("120_real",), "12.1", True),
        (("30_real", "35_real"), "3.5", False),  # older than what the provider knows
        (("80_real", "100_virtual"), "10.3", True),
        (("nonsense",), "9.0", False),
        ((), "9.0", True),
    ],
)
def test_the_devices_of_a_value(archs: tuple[str, ...], capability: str, *, expected: bool) -> None:
    assert variant_values.variant_matches(says("x", *archs), Capability.parse(capability), "13.0") is expected


@pytest.mark.parametrize(
    ("feature", "value", "cuda", "expected"),
    [
        ("cuda_version_lower_bound", "12.0", "12.0", True),
        ("cuda_version_lower_bound", "12", "12.0", True),
        ("cuda_version_lower_bound", "12.4", "12.2", False),
        ("cuda_version_lower_bound", "12.4", None, True),
        ("cuda_version_lower_bound", "later", "13.0", False),
        ("cuda_version_upper_bound", "13.0", "12.9", True),
        ("cuda_version_upper_bound", "13.0", "13.0", False),
        ("colour", "red", "13.0", False),
    ],
)
def test_the_drivers_of_a_bound(feature: str, value: str, cuda: str | None, *, expected: bool) -> None:
    variant = Variant(label="x", properties=(Property(namespace="nvidia", feature=feature, values=(value,)),))
    assert variant_values.variant_matches(variant, Capability(9, 0), cuda) is expected


def test_of_other_providers_nothing_is_known() -> None:
    variant = Variant(label="x", properties=(Property(namespace="amd", feature="gfx_arch", values=("gfx1100",)),))
    assert variant_values.variant_matches(variant, Capability(9, 0), "13.0")


def untrue(wheel: Path) -> list[tuple[str, str]]:
    found = survey(wheel, detail="containers")
    assert found.variant
    return [(str(each.capability), each.cuda) for each in variant_reach.untrue(found, found.variant)]


@pytest.mark.parametrize(
    ("archs", "bound", "expected"),
    [
        (("75_real", "90_real", "100_real"), "13.0", []),
        (("90_real",), "13.2", []),
        (("90_real", "120_real"), "13.0", [("12.0", "13.0"), ("12.1", "13.0")]),
        (("90_real",), "12.4", [("9.0", "12.4")]),  # a driver of CUDA 12 does not run it
        (("90_real", "90_virtual", "120_virtual"), "13.0", [("12.0", "13.0"), ("12.1", "13.0")]),
    ],
)
def test_a_variant_that_promises_too_much(
    tmp_path: Path, archs: tuple[str, ...], bound: str, expected: list[tuple[str, str]]
) -> None:
    wheel = plain(tmp_path, "names-130.so")  # sm_75, sm_90, sm_100
    assert untrue(labelled(wheel, says("x", *archs, bound=bound), "x")) == expected


def test_code_with_a_suffix_under_the_name_of_the_plain_one_is_found_out(tmp_path: Path) -> None:
    wheel = plain(tmp_path, "specific-130.so")  # sm_90, sm_90a, sm_120a
    assert untrue(labelled(wheel, says("x", "90_real", "120_real"), "x")) == [("12.1", "13.0")]


def test_check_says_so_on_that_very_machine(tmp_path: Path) -> None:
    wheel = labelled(plain(tmp_path, "specific-130.so"), says("x", "90_real", "120_real"), "x")
    rules = {
        verdict.machine: {each.rule for each in verdict.findings}
        for verdict in api.check(wheel, on=["12.0", "12.1", "8.0"]).verdicts
    }
    assert "variant-untrue" in rules["12.1"]
    assert "variant-untrue" not in rules["12.0"]
    assert "variant-untrue" not in rules["8.0"]  # it fails there, and says nothing else
    older = api.check(wheel, on=["9.0"], refine=Refinement(driver="550.54.14")).verdicts[0]
    assert older.outcome == "fails"
    assert "variant-untrue" not in {each.rule for each in older.findings}  # its bound keeps it from there


def test_where_the_driver_does_not_show_the_gpu_no_installer_takes_it(tmp_path: Path) -> None:
    wheel = labelled(plain(tmp_path, "names-124.so"), says("x", "120_real", bound="12.0"), "x")
    seen, unseen = (
        api.check(wheel, on=["12.0"], refine=Refinement(driver=each)).verdicts[0] for each in ("570.26", "550.54.14")
    )
    assert "variant-untrue" in {each.rule for each in seen.findings}
    assert "variant-untrue" not in {each.rule for each in unseen.findings}


def test_inspect_shows_what_a_variant_says(tmp_path: Path) -> None:
    wheel = labelled(plain(tmp_path, "names-130.so"), says("cu130_sm90", "90_real"), "cu130_sm90")
    found = api.inspect(wheel)
    assert found.variant == says("cu130_sm90", "90_real")
    assert found.succeeded


@pytest.mark.parametrize("text", [b"", b"{}", b'{"variants": {"a": {}, "b": {}}}', b"\0" * 2_000_000])
def test_a_variant_that_cannot_be_understood_is_a_finding(tmp_path: Path, text: bytes) -> None:
    found = api.inspect(labelled(plain(tmp_path, "names-130.so"), text, "x"))
    assert found.variant is None
    assert [each.rule for each in found.findings] == ["variant-unreadable"]
