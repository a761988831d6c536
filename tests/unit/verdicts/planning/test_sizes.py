from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code.contents import Survey
from cuwheel.device_code.survey import survey as surveyed
from cuwheel.errors import UsageError
from cuwheel.verdicts.planning import plans
from cuwheel.verdicts.planning.plan import ArchSize
from cuwheel_core.facts.arch import Arch
from tests.unit.verdicts.libraries import code, library

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library

FIXTURES = Path(__file__).parents[3] / "fixtures" / "bin"


def survey(*libraries: Library) -> Survey:
    return Survey(target="/x/old.whl", kind="wheel", size=1, distribution=None, libraries=libraries, findings=())


def test_bytes_of_each_architecture_and_everything_else() -> None:
    old = survey(library([code("sm_80", bytes=400), code("sm_90", bytes=600), code("compute_90", bytes=100)]))
    found = plans.predict_size(old, "12.8", [Arch.parse("sm_90"), Arch.parse("compute_90")])
    assert (found.bytes, found.other_bytes, found.like_bytes) == (10_700, 10_000, 11_100)
    assert found.libraries == ("lib/libmine.so",)
    assert "unpacked size of libmine.so of old.whl" in found.method
    assert "not in it" not in found.method


def test_what_is_not_in_it_counts_like_the_nearest_of_its_major() -> None:
    old = survey(library([code("sm_80", bytes=400), code("sm_90", bytes=600)]))
    found = plans.predict_size(old, "12.8", [Arch.parse("sm_89"), Arch.parse("sm_90a"), Arch.parse("compute_90")])
    assert found.archs == (
        ArchSize(arch=Arch.parse("sm_89"), bytes=400, like=Arch.parse("sm_80")),
        ArchSize(arch=Arch.parse("sm_90a"), bytes=600, like=Arch.parse("sm_90")),
        ArchSize(arch=Arch.parse("compute_90"), bytes=600, like=Arch.parse("sm_90")),
    )
    assert found.method.endswith("from the nearest: sm_89 like sm_80, sm_90a like sm_90, compute_90 like sm_90")


def test_one_library_for_each_cuda_version() -> None:
    old = survey(
        library([code("sm_80", bytes=1)], path="lib_118.so", toolkits=("11.8.89",)),
        library([code("sm_80", bytes=2)], path="lib_126.so", toolkits=("12.6.85",)),
        library([code("sm_80", bytes=3)], path="lib_130.so", toolkits=("13.0.88",)),
    )
    for cuda, path in {"12.9": "lib_126.so", "13.1": "lib_130.so", "12.0": "lib_126.so", "11.2": "lib_118.so"}.items():
        assert plans.predict_size(old, cuda, [Arch.parse("sm_80")]).libraries == (path,)
    assert "built by CUDA 12.6" in plans.predict_size(old, "12.9", [Arch.parse("sm_80")]).method


def test_what_nobody_asked_for_stays() -> None:
    """libcudadevrt brings relocatable code for every architecture."""
    rows = [code("sm_90", bytes=600), code("sm_90", bytes=50, linked=False), code("sm_75", bytes=7, linked=False)]
    found = plans.predict_size(survey(library(rows)), "13.0", [Arch.parse("sm_75")])
    assert (found.other_bytes, found.bytes) == (10_007, 10_657)
    only = plans.predict_size(survey(library([code("sm_90", bytes=50, linked=False)])), "13.0", [Arch.parse("sm_90")])
    assert only.bytes == only.like_bytes


@pytest.mark.parametrize("fixture", ["rdc-124.so", "rdc-130.so", "rdc-134.so"])
def test_relocatable_ptx_was_asked_for(fixture: str) -> None:
    """A wheel's own list must come to its own size: the PTX of a device link is in its objects alone."""
    old = surveyed(FIXTURES / fixture)
    (only,) = old.libraries
    own = [*dict.fromkeys(row.arch for row in only.device_code)]
    found = plans.predict_size(old, "13.0", own)
    assert found.bytes == found.like_bytes == only.size
    assert "not in it" not in found.method


def test_the_ptx_of_libcudadevrt_was_not() -> None:
    rows = [code("sm_90", bytes=600), code("compute_90", bytes=90, linked=False)]
    devrt = [code("sm_121", bytes=7, linked=False), code("compute_121", bytes=5, linked=False)]
    found = plans.predict_size(
        survey(library([*rows, *devrt])), "13.0", [Arch.parse("sm_90"), Arch.parse("compute_90")]
    )
    assert found.other_bytes == 10_012
    assert found.bytes == found.like_bytes


def test_many_libraries_are_not_all_named() -> None:
    many = survey(*(library([code("sm_90")], path=f"lib{index}.so") for index in range(5)))
    assert (
        "lib0.so, lib1.so, lib2.so and 2 more of old.whl"
        in plans.predict_size(many, "13.0", [Arch.parse("sm_90")]).method
    )


def test_a_wheel_without_device_code_says_nothing() -> None:
    with pytest.raises(UsageError, match=r"old\.whl has no device code"):
        plans.predict_size(survey(library()), "12.8", [Arch.parse("sm_90")])
