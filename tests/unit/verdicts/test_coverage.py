from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel_core.device_code.library import NOTHING
from cuwheel_core.facts.arch import Arch
from cuwheel_core.verdicts import predict
from tests.unit.verdicts.subjects import library

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.verdicts.predict import Coverage


def _reach(subject: Library) -> Coverage:
    reach = predict.coverage_of(subject)
    assert reach
    return reach


@pytest.mark.parametrize(
    ("archs", "words"),
    [
        ("sm_90", "runs natively on 9.0; no newer GPU (it has no PTX for them)"),
        ("sm_75 sm_80 sm_90 compute_90", "runs natively on 7.5 to 9.0; newer GPUs through PTX compiled by the driver"),
        ("sm_80 sm_90", "runs natively on 8.0 to 9.0; no newer GPU (it has no PTX for them)"),
        ("sm_90a compute_90a", "runs natively on 9.0; no newer GPU (it has no PTX for them)"),
        ("sm_100f", "runs natively on 10.0 to 10.7; no newer GPU (it has no PTX for them)"),
        (
            "sm_120 compute_75",
            "runs natively on 12.0, 12.1; 7.5 to 11.0 and newer GPUs through PTX compiled by the driver",
        ),
        (
            "sm_90 compute_120",
            "runs natively on 9.0; 12.0, 12.1 and newer GPUs through PTX compiled by the driver",
        ),
        ("compute_75", "7.5 to 12.1 and newer GPUs through PTX compiled by the driver"),
        ("compute_120a", "12.0 through PTX compiled by the driver; no newer GPU (it has no PTX for them)"),
        ("", "runs on no known GPU; no newer GPU (it has no PTX for them)"),
    ],
)
def test_one_container_in_words(archs: str, words: str) -> None:
    assert predict.coverage_in_words(_reach(library(archs))) == words


def test_every_container_must_serve() -> None:
    reach = _reach(library("sm_80 sm_90", "sm_90"))
    assert reach.native == ("9.0",)
    assert reach.partial == ("8.0", "8.6", "8.7", "8.8", "8.9")
    assert "only part of it serves 8.0 to 8.9" in predict.coverage_in_words(reach)


def test_relocatable_code_is_the_fallback_if_all_of_it_fits() -> None:
    whole = _reach(library(linked=("sm_90",), objects=("sm_90 compute_90",) * 2))
    assert whole.native == ("9.0",)
    assert "12.0" in whole.jit
    assert whole.future
    torn = _reach(library(linked=("sm_90",), objects=("sm_90 compute_90", "sm_90")))
    assert "12.0" not in torn.jit
    assert not torn.future


def test_relocatable_code_does_not_stand_for_a_plain_container() -> None:
    reach = _reach(library("sm_80", linked=("sm_80",), objects=("compute_80",)))
    assert reach.native == ("8.0", "8.6", "8.7", "8.8", "8.9")
    assert reach.partial[0] == "9.0"
    assert not reach.future


def test_cubins_that_the_library_loads_itself_need_not_all_serve() -> None:
    mixed = library("sm_80 sm_90")
    rows = [replace(mixed.device_code[0], arch=Arch.parse(arch), section=".rodata") for arch in ("sm_75", "sm_90")]
    reach = _reach(replace(mixed, device_code=(*mixed.device_code, *rows)))
    assert reach.native == ("8.0", "8.6", "8.7", "8.8", "8.9", "9.0")
    assert reach.partial == ("7.5",)


def test_containers_without_kernels_decide_nothing() -> None:
    subject = library("compute_75", linked=("sm_100",))
    plain, linked = subject.containers
    empty_link = replace(subject, containers=(plain, replace(linked, without_kernels=True)))
    assert (
        predict.coverage_in_words(_reach(empty_link)) == "7.5 to 12.1 and newer GPUs through PTX compiled by the driver"
    )
    nothing = replace(library("sm_75"), containers=(replace(plain, code=(0,), without_kernels=True),))
    assert predict.coverage_of(nothing) is None


def test_objects_are_judged_as_what_will_be_linked_from_them() -> None:
    reach = _reach(library(objects=("sm_90", "sm_90"), type="relocatable", format="archive"))
    assert reach.native == ("9.0",)
    assert predict.coverage_in_words(reach, once_linked=True).startswith("once linked: runs natively on 9.0;")


def test_no_device_code_no_coverage() -> None:
    assert predict.coverage_of(library()) is None
    assert predict.coverage_of(library("lto_90")) is None
    assert predict.coverage_of(library("sm_90", registration=NOTHING)) is None  # left behind: nothing loads it


def test_cubins_without_a_container_count() -> None:
    assert predict.coverage_of(library("sm_90", containers=False)) == predict.coverage_of(library("sm_90"))
