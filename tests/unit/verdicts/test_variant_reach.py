"""What a variant may say: values of which every device is served, from the first driver that serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.verdicts import variant_reach
from cuwheel_core.facts.arch import Capability
from tests.unit.verdicts.subjects import library, survey

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey

X86, ARM, WINDOWS = "cp312-cp312-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-win_amd64"


def wheel(*containers: str, tag: str = X86, cuda: int = 13, release: str = "13.0", **fields: Any) -> Survey:
    machine = "aarch64" if tag == ARM else "x86_64"
    return survey(library(*containers, cuda=cuda, toolkits=(release,), machine=machine, **fields), tags=(tag,))


def claimed(found: Survey) -> list[tuple[str, str]]:
    """CUDA and values of each claim, in words."""
    reach = variant_reach.VariantReach(found)
    made = variant_reach.claims(reach.served(), reach.devices)
    return [(each.since, " ".join(value.text for value in each.values)) for each in made]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("sm_90", [("13.0", "90_real")]),
        ("sm_80", [("13.0", "80_real")]),
        ("sm_80 sm_86", [("13.0", "80_real 86_real")]),  # both, so that 8.6 gets the nearer one of two wheels
        ("sm_86", [("13.0", "86_real")]),
        ("sm_75 sm_80 sm_90 sm_100 sm_120", [("13.0", "75_real 80_real 90_real 100_real 120_real")]),
        # No value says what has a suffix; one of which it serves every device does all the same.
        ("sm_90a", [("13.0", "90_real")]),
        ("sm_121a", [("13.0", "121_real")]),
        ("sm_120a", []),
        ("sm_120f", [("13.0", "120_real")]),
        ("sm_103f", [("13.0", "103_real")]),
        ("sm_100a", []),
        ("sm_120a sm_121a", [("13.0", "120_real 121_real")]),
        # PTX: every device of a major, and no real value for what the driver has to compile.
        ("compute_80@9.0", [("13.0", "80_virtual 90_virtual 100_virtual 120_virtual")]),
        ("compute_75@9.0", [("13.0", "80_virtual 90_virtual 100_virtual 120_virtual")]),
        ("compute_86@9.0", [("13.0", "90_virtual 100_virtual 120_virtual")]),
        ("compute_120a@9.0", []),
        ("compute_120f@9.0", [("13.0", "120_virtual")]),
        ("sm_120a compute_120@9.0", [("13.0", "120_virtual")]),
        ("sm_86 compute_80@9.0", [("13.0", "86_real 80_virtual 90_virtual 100_virtual 120_virtual")]),
        ("sm_90 compute_90@9.0", [("13.0", "90_real 100_virtual 120_virtual")]),
        # PTX asks for a newer driver than machine code does: two claims.
        ("sm_90 compute_90@9.4", [("13.0", "90_real"), ("13.4", "90_real 100_virtual 120_virtual")]),
        ("compute_90@9.4", [("13.4", "90_virtual 100_virtual 120_virtual")]),
    ],
)
def test_a_wheel_says_what_all_devices_of_a_value_bear_out(code: str, expected: list[tuple[str, str]]) -> None:
    assert claimed(wheel(code)) == expected


def test_one_container_that_does_not_serve_a_device_is_enough_to_say_nothing_of_it() -> None:
    assert claimed(wheel("sm_80 sm_90", "sm_90")) == [("13.0", "90_real")]


def test_compression_that_old_drivers_do_not_read_raises_the_bound() -> None:
    assert claimed(wheel("sm_90", cuda=12, release="12.8")) == [("12.0", "90_real")]
    assert claimed(wheel("sm_90", cuda=12, release="12.8", compression="zstd")) == [("12.4", "90_real")]


def test_no_driver_older_than_the_major_is_promised_anything() -> None:
    assert claimed(wheel("sm_80", runtime=False, cuda=12, release="12.4")) == [("12.0", "80_real")]


def test_libraries_for_several_cuda_versions_are_judged_as_the_package_chooses_among_them() -> None:
    both = [
        library("sm_80", path="bitsandbytes/libbitsandbytes_cuda118.so", cuda=11, toolkits=("11.8",)),
        library("sm_80 sm_120", path="bitsandbytes/libbitsandbytes_cuda130.so", cuda=13, toolkits=("13.0",)),
    ]
    assert claimed(survey(*both, name="bitsandbytes", version="0.50", tags=(X86,)))[0] == ("11.0", "80_real")


def test_a_jetson_counts_where_its_wheels_are_installed() -> None:
    assert Capability(8, 7) not in variant_reach.devices(wheel("sm_80"))
    assert Capability(8, 7) not in variant_reach.devices(wheel("sm_80", tag=WINDOWS))
    assert Capability(8, 7) in variant_reach.devices(wheel("sm_80", tag=ARM))
    # 80_real, 86_real and 87_real match an Orin, where a server's build of CUDA 12 fails.
    assert claimed(wheel("sm_80", tag=ARM, cuda=12, release="12.6", platform="sbsa")) == [("12.0", "88_real")]


def test_what_is_served_and_cannot_be_said_is_known() -> None:
    reach = variant_reach.VariantReach(wheel("sm_90 sm_120a compute_75@9.0"))
    served = reach.served()
    unsaid = variant_reach.unsaid(served, variant_reach.claims(served, reach.devices))
    assert [str(each.capability) for each in unsaid] == ["7.5"]
    only = variant_reach.VariantReach(wheel("sm_120a"))
    assert [str(each.capability) for each in variant_reach.unsaid(only.served(), ())] == ["12.0"]
