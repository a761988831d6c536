"""Names of GPUs as people and drivers write them. Rows are checked by their invariants, not copied."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwheel_core.errors import AmbiguousNameError, UnknownNameError
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.facts.tables import tables

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rtx 5060 ti", "GeForce RTX 5060 Ti"),
        ("NVIDIA GeForce RTX 5060 Ti", "GeForce RTX 5060 Ti"),
        ("5060ti", "GeForce RTX 5060 Ti"),
        ("rtx-5060-ti", "GeForce RTX 5060 Ti"),
        ("H100 PCIe", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe MIG 1g.10gb", "A100"),
        ("Tesla A100", "A100"),
        ("NVIDIA A10-24Q", "A10"),
        ("A10G", "A10G"),
        ("NVIDIA H20-3e", "H20"),
        ("orin nano", "Jetson Orin Nano"),
        ("Orin (nvgpu)", "Jetson AGX Orin"),
        ("NVIDIA Tegra X1", "Jetson TX1"),
        ("NVIDIA Thor", "Jetson AGX Thor"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop GPU"),
        ("GeForce RTX 2070 with Max-Q Design", "GeForce RTX 2070"),
        ("Tesla V100-SXM2-16GB", "Tesla V100"),
        ("V100", "Tesla V100"),
        ("GH200 480GB", "GH200"),
        ("NVIDIA GH200 144G HBM3e", "GH200"),
        ("GB200 NVL72", "GB200"),
        ("gb10", "GB10"),
        ("dgx spark", "GB10"),
        ("quadro rtx a6000", "RTX A6000"),
        ("a6000", "RTX A6000"),
        ("rtx 6000 ada", "RTX 6000 Ada Generation"),
        ("TITAN X (Pascal)", "TITAN X Pascal"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("H100 Hopper", "H100"),
        ("titan x maxwell", "GeForce GTX TITAN X"),
        ("RTX 3080 LHR", "GeForce RTX 3080"),
        # virtual GPUs: MIG slices, sizes without a letter, letters glued to the board
        ("GRID A100DX-4-40C", "A100"),
        ("NVIDIA H100XM-1-10CME", "H100"),
        ("NVIDIA H800L-94C", "H800"),
        ("NVIDIA GH200L-1-18C", "GH200"),
        ("GRID V100DX-32Q", "Tesla V100"),
        ("GRID V100S-32C", "Tesla V100S"),
        ("GRID T4-2B4", "Tesla T4"),
        ("GeForce RTX T10x-8", "Tesla T10"),
        ("NVIDIA L40S-48", "L40S"),
        ("NVIDIA RTXA6000-48Q", "RTX A6000"),
        ("NVIDIA RTX6000-Ada-48Q", "RTX 6000 Ada Generation"),
        ("GRID RTX6000-24Q", "Quadro RTX 6000"),
        ("RTX8000P-48Q", "Quadro RTX 8000"),
        ("NVIDIA RTX 6000D-1-42", "RTX 6000D"),
        # what Kubernetes and device trees make of it
        ("Tesla-T4-SHARED", "Tesla T4"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100"),
        ("A100-10C-SHARED", "A100"),
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super", "Jetson Orin NX"),
        ("NVIDIA Jetson AGX Orin Industrial", "Jetson AGX Orin"),
        ("NVIDIA Jetson Nano 2GB Developer Kit", "Jetson Nano"),
        ("NVIDIA Jetson TX2i", "Jetson TX2"),
        ("NVIDIA IGX Orin Developer Kit", "Jetson AGX Orin"),
        ("Jetson Orin Nano Super", "Jetson Orin Nano"),
        # editions and boards
        ("Tesla V100-SXM2-32GB-LS", "Tesla V100"),
        ("NVIDIA H100 CNX", "H100"),
        ("NVIDIA TITAN Xp COLLECTORS EDITION", "TITAN Xp"),
        ("TITAN V CEO Edition", "TITAN V"),
        ("RTX 2060 SUPER", "GeForce RTX 2060 SUPER"),
        # a dash is not always a profile's
        ("gtx-970", "GeForce GTX 970"),
        ("h-100", "H100"),
        ("K80", "Tesla K80"),
    ],
)
def test_the_ways_people_write_a_name(text: str, name: str) -> None:
    assert gpus.find_gpu(text).name == name


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("RTX 2050", "8.6"),
        ("MX570", "8.6"),
        ("MX450", "7.5"),
        ("GTX 1630", "7.5"),
        ("T4", "7.5"),
        ("Quadro RTX 6000", "7.5"),
        ("RTX 6000 Ada Generation", "8.9"),
        ("RTX PRO 6000 Blackwell", "12.0"),
        ("rtx pro 6000", "12.0"),
        ("RTX 3050 A Laptop GPU", "8.9"),
        ("RTX 3050 Laptop GPU", "8.6"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-48Q", "12.0"),
        ("NVIDIA PG506-230", "8.0"),
        ("DRIVE-PG199-PROD", "8.0"),
        ("GTX TITAN", "3.5"),
        ("Vera Rubin", "10.7"),
        ("jetson thor", "11.0"),
        ("gtx 970", "5.2"),
        ("970", "5.2"),
        ("9.0", "9.0"),
        ("sm_90", "9.0"),
        ("compute_120", "12.0"),
        ("90a", "9.0"),
        ("100f", "10.0"),
    ],
)
def test_capabilities_that_are_easy_to_get_wrong(text: str, capability: str) -> None:
    assert gpus.capability_of(text) == Capability.parse(capability)


@pytest.mark.parametrize(
    "text",
    [
        "rtx 6000",
        "RTX 4000",
        "titan x",
        "titan",
        "GTX 860M",
        "NVIDIA GeForce GTX 860M",
        "GT 730",
        "Quadro 6000",
        "RTX6000-48",
    ],
)
def test_a_name_of_several_capabilities_lists_them(text: str) -> None:
    with pytest.raises(AmbiguousNameError) as caught:
        gpus.find_gpu(text)
    found = {re.search(r"\d+\.\d", each) for each in caught.value.suggestions}
    assert len(found) > 1
    assert None not in found


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("rtx 4900", "GeForce RTX 4090"),
        ("RTX4009", "GeForce RTX 4090"),
        ("geforce rtx 3800 ti", "GeForce RTX 3080 Ti"),
        ("gtx 1800", "GeForce GTX 1080"),
        ("rtx 5009", "GeForce RTX 5090"),
        ("h1oo", "H100"),
        ("l4o", "L40"),
    ],
)
def test_a_slip_of_the_hand_is_seen_through(text: str, first: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        gpus.find_gpu(text)
    assert caught.value.suggestions[0] == first
    assert caught.value.hint.startswith(f"did you mean {first!r}")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [("rtx 5061 ti", "GeForce RTX 5060 Ti"), ("h1000", "H100"), ("jetson orim", "Jetson Orin NX")],
)
def test_an_unknown_name_suggests_near_ones(text: str, suggestion: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        gpus.find_gpu(text)
    assert suggestion in caught.value.suggestions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nvidia",
        "geforce rtx",
        "80GB",
        "Radeon RX 7900",
        "8.9+PTX",
        "rtx pro 4090",
        "TITAN Ada",
        "GRID K120Q",
        "GTX 680",
        "A999-4-40C",
        "Z100DX-4-40C",
        "A100DXL-1-5C",
        "RTX 4090X-24",
        "-4-40C",
    ],
)
def test_what_is_no_gpu_is_unknown(text: str) -> None:
    with pytest.raises(UnknownNameError):
        gpus.capability_of(text)


def test_search_by_part_of_a_name_and_by_capability() -> None:
    assert {gpu.capability for gpu in gpus.search_gpus("sm_90")} == {Capability(9, 0)}
    assert all("orin" in gpu.name.lower() for gpu in gpus.search_gpus("orin"))
    assert gpus.search_gpus("") == gpus.all_gpus()
    assert gpus.search_gpus("dgx spark")
    assert gpus.search_gpus("970")
    assert not gpus.search_gpus("radeon")


def test_a_device_tree_chip_maps_to_one_capability() -> None:
    chips = {gpu.tegra for gpu in gpus.all_gpus() if gpu.tegra}
    assert chips
    for chip in chips:
        assert len({gpu.capability for gpu in gpus.gpus_of_tegra(f"nvidia,{chip}")}) == 1
    assert gpus.gpus_of_tegra("tegra999") == ()


def test_every_alias_finds_its_row() -> None:
    for alias, target in tables().gpus.aliases.items():
        assert gpus.find_gpu(alias).name == target


@pytest.mark.property
@given(gpu=st.sampled_from(gpus.all_gpus()), data=st.data())
def test_a_full_name_in_any_case_and_spacing_finds_its_row(gpu: gpus.Gpu, data: st.DataObject) -> None:
    space = data.draw(st.sampled_from(["", " ", "  ", "-", "_"]))
    change = data.draw(st.sampled_from([str.lower, str.upper, str.title, str.swapcase]))
    prefix = data.draw(st.sampled_from(["", "NVIDIA ", "nvidia", " NVIDIA  "]))
    assert gpus.find_gpu(change(prefix + gpu.name.replace(" ", space))) == gpu


@pytest.mark.property
@given(gpu=st.sampled_from(gpus.all_gpus()), memory=st.sampled_from(["16GB", "80 GB", "24G", "80GB HBM3"]))
def test_memory_never_changes_the_capability(gpu: gpus.Gpu, memory: str) -> None:
    assert gpus.find_gpu(f"{gpu.name} {memory}").capability == gpu.capability


@pytest.mark.property
@given(
    gpu=st.sampled_from([gpu for gpu in gpus.all_gpus() if gpu.product == "data centre"]),
    profile=st.from_regex(r"(-[1-7])?-[1-9][0-9]{0,2}([ABCQ]|CME)", fullmatch=True),
)
def test_a_virtual_gpu_has_the_capability_of_its_board(gpu: gpus.Gpu, profile: str) -> None:
    assert gpus.find_gpu(f"NVIDIA {gpu.name}{profile}").capability == gpu.capability


def test_letters_are_left_out_for_boards_of_data_centres_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter may be another chip: an RTX 6000D is not an RTX 6000."""
    monkeypatch.setattr(gpus, "_nearest", lambda _: [])  # suggestions cost more than all the rest
    others = [gpu for gpu in gpus.all_gpus() if gpu.product != "data centre" and gpu.name[-1].isdigit()]
    for gpu in others:
        for letter in tables().gpus.vgpu.letters:
            try:
                found = gpus.find_gpu(f"{gpu.name}{letter}-8")
            except UnknownNameError:
                continue
            assert found.name.lower().endswith(letter) or found.product == "data centre", (gpu.name, letter)
