from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import ConfigurationError, UsageError
from cuwheel.machine import fleet, profile
from cuwheel.machine.fleet import Machine, Refinement
from cuwheel_core.errors import UnknownNameError, UnreadableError
from cuwheel_core.facts.arch import Capability
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from pathlib import Path

FLEET = """\
[[machine]]
name = "training"
gpu = "h100"
driver = "550.54.14"
os = "linux"
cpu = "amd64"
glibc = "2.35"
python = "3.11"
torch = "2.7.1+cu128"
torch_cuda = "12.8"
count = 8

[[machine]]
name = "edge"
gpu = "Jetson AGX Orin"
l4t = "36.4"

[[machine]]
name = "old"
capability = "7.0"
driver_cuda = "12.2"
jit = "disabled"
libraries = ["libcudart.so.12"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET)
    return path


def test_a_fleet_file(file: Path) -> None:
    training, edge, old = fleet.machines_named([file])
    assert (training.name, training.gpu, training.capability, training.count) == ("training", "H100", "9.0", 8)
    assert (training.cpu, training.torch_cuda, training.product) == ("x86_64", "12.8", "data centre")
    assert (edge.capability, edge.l4t, edge.cpu, edge.os) == ("8.7", "36.4", "aarch64", "linux")
    assert (old.capability, old.driver_cuda, old.jit, old.gpu) == ("7.0", "12.2", "disabled", None)
    assert old.libraries == ("libcudart.so.12",)


def test_every_problem_of_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("""\
colour = "red"
[[machine]]
name = "a"
gpu = "h10O"
drver = "5"
[[machine]]
name = "b"
gpu = "frobnicator 9"
driver = "new"
count = 0
[[machine]]
name = "c"
os = "Linux"
[[machine]]
name = "d"
[[machine]]
name = "d"
gpu = "h100"
capability = "8.0"
""")
    with pytest.raises(ConfigurationError) as error:
        fleet.machines_named([path])
    told = "\n".join(error.value.problems)
    for part in (
        "unknown key 'colour'",
        "unknown key 'drver'; did you mean 'driver'?",
        "machine 'b': no GPU named 'frobnicator 9'",
        "machine 'b': driver = 'new' is not a version",
        "machine 'b': count is 0",
        "machine[2].os: 'Linux' is not one of linux, windows",
        "machine 'd': it has neither gpu nor capability",
        "two machines are named 'd'",
        "'h100' has capability 9.0, not 8.0",
    ):
        assert part in told
    assert "[[machine]]" in error.value.hint


@pytest.mark.parametrize(
    ("text", "problem"), [("", "no [[machine]]"), ("machine = 3", "no [[machine]]"), ("=", "TOML")]
)
def test_what_is_not_a_fleet_file(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=problem.replace("[", r"\[")):
        fleet.machines_named([path])


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        fleet.machines_named([str(tmp_path / "nowhere.toml")])
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (9 << 20))
    with pytest.raises(ConfigurationError, match="too large"):
        fleet.machines_named([large])


def test_gpus_and_capabilities_with_commas_or_repeated() -> None:
    found = fleet.machines_named(["h100, l40", "8.6", "sm_120", "h100"])
    assert [(each.name, each.capability) for each in found] == [
        ("h100", "9.0"),
        ("l40", "8.9"),
        ("8.6", "8.6"),
        ("sm_120", "12.0"),
    ]
    assert all(each.driver is None and each.os is None and each.libraries is None for each in found)


@pytest.mark.parametrize("name", ["orin", "8.7", "Jetson AGX Orin", "10.1", "thor"])
def test_a_tegra_says_more(name: str) -> None:
    (found,) = fleet.machines_named([name])
    assert (found.os, found.cpu, found.tegra, found.l4t, found.product) == ("linux", "aarch64", True, None, "Jetson")
    assert found.capability in ("8.7", "11.0")


def test_all_unknown_names_at_once() -> None:
    with pytest.raises(UnknownNameError) as one:
        fleet.machines_named(["h10O"])
    assert one.value.hint
    with pytest.raises(UsageError) as several:
        fleet.machines_named(["h100,frob", "nope"])
    assert "'frob'" in several.value.message
    assert "'nope'" in several.value.message


def test_refinements_win_and_leave_the_rest() -> None:
    (found,) = fleet.machines_named(
        ["h100"], Refinement(driver="570.26", cpu="AMD64", torch_cuda="12.8", jit="disabled")
    )
    assert (found.driver, found.cpu, found.torch_cuda, found.jit, found.glibc) == (
        "570.26",
        "x86_64",
        "12.8",
        "disabled",
        None,
    )
    known = Machine(name="x", capability=Capability.parse("9.0"), driver="580", driver_cuda="13.0", glibc="2.35")
    assert Refinement(driver="570.26").apply(known).driver_cuda is None
    assert Refinement(glibc="2.28").apply(known).driver == "580"
    assert fleet.machines_named([known]) == (known,)


def test_profiles(tmp_path: Path) -> None:
    healthy = next(each for each in MACHINES if each.name == "a healthy H200").profile
    path = tmp_path / "gpu07.json"
    profile.save(healthy, path)
    (found,) = fleet.machines_named([path])
    assert (found.name, found.capability, found.os, found.cpu) == ("gpu07", "9.0", "linux", "x86_64")
    assert found.driver == healthy.driver.version
    assert found.libraries is not None
    assert fleet.machines_here(healthy)[0].name == "this machine"


@pytest.mark.parametrize("name", ["gpu07", "gpu07.toml", "gpu07.profile"])
def test_a_profile_is_one_under_any_name(name: str, tmp_path: Path) -> None:
    healthy = next(each for each in MACHINES if each.name == "a healthy H200").profile
    profile.save(healthy, tmp_path / name)
    (found,) = fleet.machines_named([str(tmp_path / name)])
    assert (found.name, found.driver) == ("gpu07", healthy.driver.version)


def test_a_profile_with_several_kinds_of_gpu_is_several_machines() -> None:
    mixed = next(each for each in MACHINES if each.name == "a healthy H200")
    two = replace(mixed, gpus=(("NVIDIA H200", "9.0"), ("NVIDIA L40S", "8.9"), ("NVIDIA L40S", "8.9"))).profile
    assert [(each.name, each.capability) for each in fleet.from_profile(two, "gpu07")] == [
        ("gpu07 (NVIDIA H200)", "9.0"),
        ("gpu07 (NVIDIA L40S)", "8.9"),
    ]
    none = replace(mixed, gpus=()).profile
    assert [each.capability for each in fleet.from_profile(none)] == [None]


@pytest.mark.parametrize(
    ("variables", "jit"),
    [
        ({}, "allowed"),
        ({"CUDA_DISABLE_PTX_JIT": "1"}, "disabled"),
        ({"CUDA_FORCE_PTX_JIT": "1"}, "forced"),
        ({"CUDA_FORCE_PTX_JIT": "0"}, "allowed"),
    ],
)
def test_switches_of_a_profile(variables: dict[str, str], jit: str) -> None:
    healthy = next(each for each in MACHINES if each.name == "a healthy H200")
    changed = replace(healthy, variables={**variables, "BNB_CUDA_VERSION": "122"}).profile
    (found,) = fleet.from_profile(changed)
    assert found.jit == jit
    assert found.loads_by("BNB_CUDA_VERSION") == "122"


def test_this_machine_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = fleet.from_gpu("l40")
    monkeypatch.setattr("cuwheel.machine.probe.probe", lambda env, **_: env)
    monkeypatch.setattr(fleet, "from_profile", lambda found: (here,) if found is None else ())
    assert [each.gpu for each in fleet.machines_named(["this,h100"])] == [here.gpu, fleet.from_gpu("h100").gpu]


def test_an_l4t_that_is_not_for_the_board(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[[machine]]\nname = "old"\ngpu = "Jetson AGX Xavier"\nl4t = "36.4"\n')
    with pytest.raises(ConfigurationError, match=r"L4T 36\.4 \(JetPack 6\) runs on boards of 8\.7, not 7\.2"):
        fleet.read_fleet_file(path)
