from __future__ import annotations

import pytest

from cuwheel.facts import torch
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.arch import Arch

pytestmark = pytest.mark.unit


def test_what_torch_takes() -> None:
    assert torch.spelled(Arch.parse("sm_90a")) == "9.0a"
    assert torch.takes(Arch.parse("sm_90a"))
    assert not torch.takes(Arch.parse("sm_100f"))
    assert not torch.takes(Arch.parse("sm_88"))


@pytest.mark.parametrize(
    ("release", "name", "means"),
    [
        (None, "Blackwell+Tegra", "11.0"),
        ("2.8.0", "Blackwell+Tegra", "10.1"),
        ("2.7.1", "Blackwell", "10.0;12.0+PTX"),
        ("2.6.0", "Blackwell", "10.0+PTX"),
        ("2.5.1", "Blackwell", None),
        ("2.15.0", "Rubin", "10.7+PTX"),
        ("2.13.0", "Rubin", None),
        ("2.0.0", "Ampere+Tegra", None),
        ("1.13", "Ampere", "8.0;8.6+PTX"),
    ],
)
def test_a_name_means_what_its_release_makes_of_it(release: str | None, name: str, means: str | None) -> None:
    assert torch.list_named(name, release) == means


def test_a_release_takes_what_a_release_took_up_and_did_not_drop() -> None:
    taken = {release: torch.architectures(release) for release in ("2.0", "2.1", "2.8.0+cu128", "2.9")}
    assert "8.7" not in taken["2.0"]
    assert "8.7" in taken["2.1"]
    assert {"10.1", "10.1a"} <= {*taken["2.8.0+cu128"]}
    assert {"10.1", "11.0"} & {*taken["2.9"]} == {"11.0"}
    assert torch.architectures() == torch.architectures("99")


def test_names_stand_for_lists() -> None:
    assert torch.list_named("ampere") == "8.0;8.6+PTX"
    assert torch.list_named("Ampere+Tegra") == "8.7"
    assert torch.list_named("Fermi") is None


def test_arm64_has_one_distribution_from_a_release_on() -> None:
    assert [toolkits.one_arm64(toolkits.find_toolkit(each)) for each in ("12.9", "13.0")] == [False, True]
