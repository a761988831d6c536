"""Which setting makes bitsandbytes load the library that runs: by its release, torch's CUDA, the driver and the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.verdicts import pins
from cuwheel.verdicts.judge import judge
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.verdicts.pins import Pin

pytestmark = pytest.mark.unit
EXACT, NEAREST, VARIANTS = "0.49.0", "0.50.0", "0.43.3"
ADA, CASE_1 = "8.9", {"torch_cuda": "12.4", "driver": "535.54.03"}


def _wheel(version: str, *cudas: str, code: str = "sm_60 sm_70 sm_80 sm_90", newest: str = "") -> Survey:
    """`newest`: the code of the last one."""
    codes = [code] * len(cudas)
    if newest:
        codes[-1] = newest
    made = [
        library(each, path=f"bitsandbytes/libbitsandbytes_cuda{cuda}.so", cuda=int(cuda[:2]))
        for cuda, each in zip(cudas, codes, strict=True)
    ]
    return survey(*made, name="bitsandbytes", version=version)


def _needed(subject: Survey, capability: str = "8.6", **known: Any) -> Pin | None:
    return pins.needed_pin(subject, [machine(capability, **known)])


def test_a_wheel_for_the_drivers_cuda_and_a_torch_of_a_newer_one() -> None:
    """A team built for CUDA 12.2, which its driver is for; its torch is for 12.4."""
    pin = _needed(_wheel(EXACT, "122"), **CASE_1)
    assert pin is not None
    assert (pin.setting, pin.must, pin.cuda) == ("BNB_CUDA_VERSION=122", True, "12.2")
    assert pin.link == "ln -s libbitsandbytes_cuda122.so libbitsandbytes_cuda124.so"
    assert _needed(_wheel(NEAREST, "122"), **CASE_1) is None, "it takes the nearest by itself"


def test_the_stock_wheel_is_made_to_load_what_the_driver_was_made_for() -> None:
    pin = _needed(_wheel(EXACT, "118", "120", "121", "122", "123", "124"), **CASE_1)
    assert pin is not None
    assert (pin.setting, pin.must) == ("BNB_CUDA_VERSION=122", False)
    assert "newer than the driver" in pin.why
    assert _needed(_wheel(EXACT, "118", "122", "124"), torch_cuda="12.4", driver="550.54.14") is None
    assert _needed(_wheel(EXACT, "118", "122", "124"), torch_cuda="12.4") is None, "no driver is known"


def test_what_would_have_to_be_compiled_by_an_older_driver() -> None:
    subject = _wheel(EXACT, "122", "124", newest="compute_80@8.4")
    pin = _needed(subject, **CASE_1)
    assert pin is not None
    assert (pin.value, pin.must) == ("122", True)
    assert judge(subject, pin.on(machine("8.6", **CASE_1))).outcome == "compatible"


def test_another_major_is_never_taken_and_nothing_is_set_in_vain() -> None:
    assert _needed(_wheel(EXACT, "118"), **CASE_1) is None
    assert _needed(_wheel(EXACT, "122", code="sm_90"), **CASE_1) is None, "no library of it runs"
    assert _needed(_wheel(EXACT, "122")) is None, "no torch is known"
    other = replace(_wheel(EXACT, "122"), distribution=None)
    assert _needed(other, **CASE_1) is None


def test_a_variable_that_is_set_wrongly_is_set_right() -> None:
    subject = _wheel(EXACT, "122", "124")
    here = machine("8.6", torch_cuda="12.4", driver="550.54.14", loads=("BNB_CUDA_VERSION=118",))
    pin = pins.needed_pin(subject, [here])
    assert pin is not None
    assert pin.value == "124"
    assert judge(subject, pin.on(here)).outcome == "compatible"
    assert pins.needed_pin(subject, [replace(here, loads=("BNB_CUDA_VERSION=124",))]) is None


def test_one_setting_for_every_gpu_of_a_machine() -> None:
    subject = _wheel(EXACT, "122", "124", newest="sm_80")
    both = [machine("8.6", **CASE_1), machine("9.0", **CASE_1)]
    pin = pins.needed_pin(subject, both)
    assert pin is not None
    assert pin.value == "122"


def test_old_gpus_whose_variable_names_no_file_need_a_link() -> None:
    names = ("cuda122", "cuda122_nocublaslt")
    made = [library("sm_60 sm_70 sm_80", path=f"bitsandbytes/libbitsandbytes_{each}.so") for each in names]
    subject = survey(*made, name="bitsandbytes", version=VARIANTS)
    assert _needed(subject, "7.0", **CASE_1) is None
    fix = next(each.fix for each in judge(subject, machine("7.0", **CASE_1)).findings if each.severity == "error")
    assert "ln -s libbitsandbytes_cuda122_nocublaslt.so libbitsandbytes_cuda124_nocublaslt.so" in fix
    assert "BNB_CUDA_VERSION" not in fix
    assert _needed(subject, "8.0", **CASE_1) is not None
