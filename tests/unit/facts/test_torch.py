from __future__ import annotations

import pytest

from cuwheel.facts import toolkits, torch
from cuwheel.facts.arch import Arch

pytestmark = pytest.mark.unit


def test_what_torch_takes() -> None:
    assert torch.spelled(Arch.parse("sm_90a")) == "9.0a"
    assert torch.takes(Arch.parse("sm_90a"))
    assert not torch.takes(Arch.parse("sm_100f"))
    assert not torch.takes(Arch.parse("sm_88"))


def test_names_stand_for_lists() -> None:
    assert torch.named("ampere") == "8.0;8.6+PTX"
    assert torch.named("Ampere+Tegra") == "8.7"
    assert torch.named("Fermi") is None


def test_arm64_has_one_distribution_from_a_release_on() -> None:
    assert [toolkits.one_arm64(toolkits.find_toolkit(each)) for each in ("12.9", "13.0")] == [False, True]
