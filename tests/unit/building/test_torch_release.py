"""The torch that a build compiles with, by its requirements: its list of architectures is spelled for it."""

from __future__ import annotations

import pytest

from cuwheel.building.environment import torch_release
from cuwheel.facts import torch
from cuwheel.verdicts.planning import plans
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.facts.arch import Arch


@pytest.mark.parametrize(
    ("requirements", "release"),
    [
        (("torch==2.6.0",), "2.6.0"),
        (("setuptools", "Torch == 2.5.1+cu124"), "2.5.1"),
        (("torch==2.6.*",), "2.6.9"),
        (("torch~=2.6.0",), "2.6.9"),
        (("torch>=2.4,<2.7",), "2.6.9"),
        (("torch<=2.6.0",), "2.6.0"),
        (("torch",), None),
        (("torch>=2.4",), None),
        (("torch<1.0",), None),
        (("torchvision==0.21", "no requirement at all ("), None),
        ((), None),
    ],
)
def test_what_requirements_say_of_it(requirements: tuple[str, ...], release: str | None) -> None:
    assert torch_release(requirements) == release


def test_the_list_is_spelled_for_that_release() -> None:
    arch = Arch.parse("sm_120")
    assert torch.takes(arch, "2.7.0")
    assert not torch.takes(arch, "2.6.0")
    spelled = {
        release: plans.plan_for(["rtx 5090"], ["12.8"], PlanOptions(), torch=release).jobs[0].flags.torch
        for release in (None, "2.7.0", "2.6.0")
    }
    assert spelled[None] == spelled["2.7.0"] == "12.0"
    assert spelled["2.6.0"] is None
