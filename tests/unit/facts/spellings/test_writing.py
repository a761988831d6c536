from __future__ import annotations

import pytest

from cuwheel.facts import spellings
from cuwheel.facts.spellings.row import Spelling
from cuwheel.verdicts.planning import planner
from cuwheel.verdicts.planning.plan import Flags, Spellings
from cuwheel_core.facts.arch import Arch


def flags(text: str, *, cmake: str | None = None, torch: str | None = None) -> Spellings:
    archs = [Arch.parse(word) for word in text.split()]
    cubins = [arch for arch in archs if arch.kind == "sm"]
    ptx = [arch for arch in archs if arch.kind == "compute"]
    return planner.spell(cubins, ptx, cmake=cmake, torch=torch)


def test_a_list_with_ptx_of_its_highest_can_be_said_by_nearly_all() -> None:
    said = flags("sm_80 sm_90 compute_90")
    assert said.cmake.value == said.cudaarchs.value == "80-real;90-real;90-virtual"
    assert said.cmake.needs == "CMake 3.18 or later"
    assert (said.cmake.variable, said.cudaarchs.variable) == ("CMAKE_CUDA_ARCHITECTURES", "CUDAARCHS")
    assert said.torch.value == "8.0;9.0+PTX"
    assert said.nvcc.value == (
        "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 "
        "-gencode arch=compute_90,code=compute_90"
    )
    assert said.bitsandbytes.value == "80;90"
    assert (said.cargo.value, said.cargo.nearest) == (None, "80")
    assert "takes one value" in said.cargo.reason


def test_case_2_bitsandbytes_adds_ptx() -> None:
    said = flags("sm_89 sm_90").bitsandbytes
    assert said == Spelling(
        variable="COMPUTE_CAPABILITY",
        value=None,
        reason="it always adds PTX for its highest (compute_90)",
        nearest="89;90",
    )
    assert flags("sm_80 sm_90 compute_80").bitsandbytes.reason.endswith("it cannot make compute_80")


def test_ptx_on_any_entry_but_never_alone() -> None:
    assert flags("sm_80 sm_90 compute_80").torch.value == "8.0+PTX;9.0"
    alone = flags("sm_90 compute_80").torch
    assert (alone.value, alone.nearest) == (None, "8.0+PTX;9.0")
    assert alone.reason == "+PTX also adds machine code: sm_80"
    only = flags("compute_90")
    assert only.cmake.value == "90-virtual"
    assert only.bitsandbytes.reason == "it cannot make PTX alone"
    assert only.bitsandbytes.nearest == "90"
    assert only.cargo.value == "90"


@pytest.mark.parametrize(
    ("cmake", "value", "nearest"),
    [
        (None, "90a-real;100f-real", None),
        ("4.1", "90a-real;100f-real", None),
        ("3.31.8", "90a-real;100f-real", None),
        ("4.0.1", None, "90a-real;100-real"),
        ("3.31.7", None, "90a-real;100-real"),
        ("3.24", None, "90-real;100-real"),
        ("3.22", "90a-real;100f-real", None),
    ],
)
def test_a_cmake_too_old(cmake: str | None, value: str | None, nearest: str | None) -> None:
    said = flags("sm_90a sm_100f", cmake=cmake).cmake
    assert (said.value, said.nearest) == (value, nearest)
    if value is None:
        assert f"CMake {cmake} does not take" in said.reason
        assert "CMake 4.0.2 or later (in 3.31 from 3.31.8 on)" in said.reason


def test_a_cmake_without_the_variable() -> None:
    said = flags("sm_90", cmake="3.17.5").cmake
    assert (said.value, said.nearest, said.reason) == (None, None, "CMake 3.17.5 does not have it yet: 3.18 does")


def test_bitsandbytes_goes_through_cmake() -> None:
    said = flags("sm_90a sm_100f compute_100f", cmake="3.28").bitsandbytes
    assert (said.value, said.reason, said.nearest) == (None, "CMake 3.28 does not take 100f", "90a;100")
    assert flags("sm_90a compute_90a").bitsandbytes.value == "90a"


def test_what_torch_refuses() -> None:
    said = flags("sm_90a sm_100f").torch
    assert (said.value, said.nearest) == (None, "9.0a;10.0")
    assert said.reason == "torch does not take 10.0f"
    said = flags("sm_88 sm_107 compute_107").torch
    assert said.nearest == "8.7;10.7+PTX"
    said = flags("sm_101").torch
    assert (said.value, said.nearest) == (None, "10.0")
    assert said.reason == "torch does not take 10.1: it needs torch 2.7 or later, before 2.9"


@pytest.mark.parametrize(
    ("release", "value", "nearest"),
    [
        (None, "8.0;8.7;10.7", None),
        ("2.14.0", "8.0;8.7;10.7", None),
        ("2.13.0+cu130", None, "8.0;8.7;10.3"),
        ("2.6.0", None, "8.0;8.7;10.0"),
        ("2.0.1", None, "8.0;8.6"),
    ],
)
def test_torch_takes_what_its_release_knows(release: str | None, value: str | None, nearest: str | None) -> None:
    said = flags("sm_80 sm_87 sm_107", torch=release).torch
    assert (said.value, said.nearest) == (value, nearest)
    if release is None:
        assert said.needs == "torch 2.14 or later"
    elif value is None:
        assert f"torch {release} does not take" in said.reason


def test_cargo_reads_a_number() -> None:
    assert flags("sm_89").cargo.value == "89"
    assert flags("sm_89 compute_89").cargo.value == "89"
    said = flags("sm_90a").cargo
    assert (said.value, said.nearest) == (None, "90")
    assert "without suffix" in said.reason


def test_nothing_to_build() -> None:
    said = flags("")
    for name in spellings.NAMES:
        assert getattr(said, name).value is None
        assert getattr(said, name).reason == "there is nothing to build"


@pytest.mark.parametrize("text", ["sm_89 sm_90", "sm_80 sm_90 compute_90", "sm_75 compute_75", "sm_90a", "sm_100f"])
@pytest.mark.parametrize("name", ["cmake", "torch", "nvcc", "bitsandbytes"])
def test_what_is_said_is_what_is_read(text: str, name: str) -> None:
    value = getattr(flags(text), name).value
    if value is not None:
        read = spellings.BY_NAME[name].read(value)
        assert {str(arch) for arch in read.archs} == set(text.split())
        assert not read.unknown


def test_json_has_a_field_for_every_spelling() -> None:
    assert set(Spellings.__struct_fields__) == set(Flags.__struct_fields__) == set(spellings.NAMES)


def test_names_are_told_apart() -> None:
    assert len(set(spellings.NAMES)) == len(spellings.ROWS) == len({row.variable for row in spellings.ROWS})
