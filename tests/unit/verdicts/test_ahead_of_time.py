"""Which ptxas compiles a piece of PTX for a GPU: the major that every driver for it loads, or the driver's own."""

from __future__ import annotations

import pytest

from cuwheel.errors import UnavailableError
from cuwheel.verdicts.ahead_of_time import release_for
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.arch import Capability

NEWEST_12, NEWEST_13 = toolkits.find_toolkit("12").version, toolkits.find_toolkit("13").version


@pytest.mark.parametrize(
    ("isa", "device", "suffix", "driver", "wanted"),
    [
        ("7.8", "9.0", "", None, "11.8"),  # the newest of the major that wrote it
        ("8.4", "9.0", "", None, NEWEST_12),
        ("9.0", "9.0", "", None, NEWEST_13),
        ("7.8", "12.0", "", None, NEWEST_12),  # CUDA 11 does not know the GPU, and no driver of 11 does either
        ("6.0", "7.5", "", None, "11.8"),
        ("9.0", "9.0", "", "13.0", "13.0"),  # the driver's own
        ("8.4", "9.0", "", "13.0", "13.0"),
        ("9.4", "9.0", "", "13.0", "13.4"),  # error 222, cured by the first that knows the PTX
        ("8.4", "7.0", "", "13.0", NEWEST_12),  # newer ones do not compile for it any more; the driver loads it
        ("9.0", "10.0", "a", None, NEWEST_13),
        ("8.7", "11.0", "", None, NEWEST_12),  # Thor was 10.1 then
    ],
)
def test_the_release_that_fits(isa: str, device: str, suffix: str, driver: str | None, wanted: str) -> None:
    assert release_for(isa, Capability.parse(device), suffix, driver).version == wanted


@pytest.mark.parametrize(
    ("isa", "device", "suffix", "driver", "only", "why"),
    [
        ("9.0", "7.0", "", None, None, "the last CUDA that compiles for 7.0 is 12.9, and PTX ISA 9.0 is of CUDA 13.0"),
        ("9.0", "9.0", "", "12.8", None, "a driver for CUDA 12.8 does not load what that makes"),
        ("7.0", "8.0", "a", None, None, "no known ptxas compiles for 8.0a"),
        ("9.4", "9.0", "", None, "13.0", "CUDA 13.0 was asked for, and PTX ISA 9.4 is of CUDA 13.4"),
        ("99.9", "9.0", "", None, None, "and PTX ISA 99.9 is of a later release"),
        ("7.0", "12.0", "", None, "11.8", "the ptxas of CUDA 11.8 does not compile for 12.0"),
    ],
)
def test_none_that_fits(isa: str, device: str, suffix: str, driver: str | None, only: str | None, why: str) -> None:
    with pytest.raises(UnavailableError, match=why):
        release_for(isa, Capability.parse(device), suffix, driver, only)


def test_one_release_and_no_other() -> None:
    assert release_for("8.4", Capability.parse("9.0"), only="12.9").version == "12.9"
