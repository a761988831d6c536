"""Which GPUs of this machine count: all, those that a variable leaves, those that are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.errors import UsageError
from cuwheel.machine import fleet, probe
from cuwheel.machine.profile import Gpu, Variable
from cuwheel_core.facts.arch import Capability
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from cuwheel.machine.profile import MachineProfile

KINDS = ("NVIDIA H100", "NVIDIA A100", "NVIDIA L4")


def _profile(value: str | None) -> MachineProfile:
    gpus = tuple(
        Gpu(name=name, capability=Capability.parse(capability), memory=None, found_via="NVML")
        for name, capability in zip(KINDS, ("9.0", "8.0", "8.9"), strict=True)
    )
    base = MACHINES[0].profile
    variables = () if value is None else (Variable(name="CUDA_VISIBLE_DEVICES", value=value, found_via="environment"),)
    return replace(base, gpus=gpus, variables=variables)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (None, KINDS),
        ("1", KINDS[1:2]),
        ("2, 0", (KINDS[2], KINDS[0])),
        ("", ()),
        ("-1", ()),
        ("0,9,1", KINDS[:1]),
        ("GPU-8932f937", KINDS),
        ("MIG-1/2/3", KINDS),
        ("banana", ()),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value: str | None, left: tuple[str, ...]) -> None:
    assert tuple(each.name for each in fleet.visible_to_programs(_profile(value)).gpus) == left


def test_this_machine_is_what_a_program_sees_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda _env, **_: _profile("1,2"))
    assert [each.gpu for each in fleet.machines_asked_for(())] == list(KINDS[1:])
    assert [each.gpu for each in fleet.machines_asked_for(["h100"])] == ["H100"]


def test_a_machine_whose_gpus_are_all_hidden_is_no_machine_to_choose_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda _env, **_: _profile(""))
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES hides every GPU") as caught:
        fleet.machines_asked_for(())
    assert "--on this" in (caught.value.hint or "")
    assert [each.gpu for each in fleet.machines_asked_for(["this"])] == list(KINDS)
