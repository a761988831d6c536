"""Which drivers know a GPU, what comes of one that does not, and what is left to do then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel import api
from cuwheel.cli import main
from cuwheel.machine import fleet
from cuwheel.verdicts.judge import judge
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.facts.tables import tables
from cuwheel_core.verdicts import drivers
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from cuwheel.verdicts.verdict import Verdict

pytestmark = pytest.mark.unit


def _on(gpu: str, *archs: str, cuda: int = 12, **known: Any) -> Verdict:
    refined = fleet.Refinement(**{"os": "linux", **known}).apply(fleet.from_gpu(gpu))
    return judge(survey(library(*archs, cuda=cuda)), refined)


def _errors(verdict: Verdict) -> list[str]:
    return [each.rule for each in verdict.findings if each.severity == "error"]


def _fix(verdict: Verdict, rule: str) -> str:
    return next(each.fix for each in verdict.findings if each.rule == rule)


@pytest.mark.parametrize(
    ("gpu", "known", "expected"),
    [
        ("h100", {"driver": "470.256.02"}, "too-old"),
        ("h100", {"driver": "520.61.05"}, "known"),
        ("h100", {"driver_cuda": "11.7"}, "too-old"),
        ("h100", {"driver_cuda": "11.8"}, "open"),
        ("rtx 5090", {"driver": "535.183.01"}, "too-old"),
        ("rtx 5090", {"driver": "566.36", "os": "windows"}, "too-old"),
        ("rtx 5090", {"driver": "572.16", "os": "windows"}, "known"),
        ("rtx 5090", {"driver_cuda": "12.7"}, "too-old"),
        ("b300", {"driver": "575.57.08"}, "too-old"),
        ("a100", {"driver": "440.33.01"}, "too-old"),
        ("t4", {"driver": "396.51"}, "too-old"),
        ("gtx 1080", {"driver": "590.48.01"}, "too-new"),
        ("gtx 1080", {"driver": "580.142"}, "known"),
        ("gtx 1080", {"driver": "582.28", "os": "windows"}, "known"),
        ("gtx 1080", {"driver": "591.44", "os": "windows"}, "too-new"),
        ("v100", {"driver_cuda": "13.1"}, "too-new"),
        ("v100", {"driver_cuda": "13.0"}, "open"),
        ("3.5", {"driver": "495.29.05"}, "too-new"),
        ("t4", {"driver": "615.71.09"}, "known"),
        ("jetson agx orin", {"driver": "540.4.0"}, "open"),
        ("v100", {}, "open"),
    ],
)
def test_what_a_driver_knows(gpu: str, known: dict[str, Any], expected: str) -> None:
    refined = fleet.Refinement(**known).apply(fleet.from_gpu(gpu))
    assert drivers.gpu_state(refined, refined.os or "linux") == expected


def test_a_driver_that_does_not_know_the_gpu_finds_no_device_whatever_code_there_is() -> None:
    old = _on("rtx 5090", "sm_120", driver="535.183.01")
    assert (old.outcome, old.predicted_error and old.predicted_error.code) == ("fails", 100)
    assert _errors(old) == ["gpu-unknown-to-driver"]
    assert _fix(old, "gpu-unknown-to-driver") == "update the driver to 570 or later"
    new = _on("gtx 1080", "sm_61", driver="590.48.01")
    assert (new.outcome, new.predicted_error and new.predicted_error.code) == ("fails", 100)
    assert _fix(new, "gpu-unknown-to-driver") == "install a driver of branch 580"


def test_what_the_driver_shows_it_knows() -> None:
    """Whatever the table says: a profile of a machine whose NVML lists the GPU."""
    seen = replace(fleet.from_gpu("rtx 5090"), driver="565.57.01", gpu_seen=True)
    assert judge(survey(library("sm_120")), seen).outcome == "native"
    other = fleet.Refinement(driver="565.57.01").apply(seen)
    assert judge(survey(library("sm_120")), other).outcome == "fails"


def test_a_library_without_device_code_meets_it_too() -> None:
    assert _on("h100", driver="470.256.02", cuda=11).outcome == "fails"


def test_all_that_stands_in_the_way_is_told_in_the_order_in_which_it_is_met() -> None:
    verdict = _on("v100", "sm_89 sm_90", cuda=13, driver="535.54.03")
    assert _errors(verdict) == ["driver-below-cuda-floor", "no-code-for-gpu"]
    assert verdict.predicted_error is not None
    assert verdict.predicted_error.code == 35
    verdict = _on("rtx 5090", "sm_90", cuda=13, driver="535.54.03")
    assert _errors(verdict) == ["driver-below-cuda-floor", "gpu-unknown-to-driver", "no-code-for-gpu"]


def test_after_a_driver_that_does_not_know_the_gpu_its_first_branch_decides() -> None:
    """Every driver of branch 570 came for CUDA 12.8: there is none that would be older than that."""
    verdict = _on("rtx 5090", "compute_90@8.7", driver="535.54.03")
    assert _errors(verdict) == ["gpu-unknown-to-driver"]
    verdict = _on("rtx 5090", "compute_90@8.8", driver="535.54.03")
    assert _errors(verdict) == ["gpu-unknown-to-driver", "ptx-newer-than-driver"]
    told = next(each for each in verdict.findings if each.rule == "ptx-newer-than-driver")
    assert "branch 570 of the driver (ISA 8.7), the oldest that would otherwise do" in told.message
    ended = _on("v100", "compute_70@9.0", driver="590.48.01")
    assert _errors(ended) == ["gpu-unknown-to-driver"]
    assert _errors(_on("v100", "compute_70@9.1", driver="590.48.01")) == [
        "gpu-unknown-to-driver",
        "ptx-newer-than-driver",
    ]


def test_a_fix_names_only_toolkits_that_can_do_it() -> None:
    verdict = _on("v100", "sm_89 sm_90", cuda=13, driver="535.54.03")
    floor, code = (_fix(verdict, rule) for rule in ("driver-below-cuda-floor", "no-code-for-gpu"))
    assert "does not help" in floor
    assert "update" not in floor
    assert "CUDA 9.0 to 12.9" in floor
    assert "CUDA 13, which built it, does not compile for this GPU" in code
    assert "CUDA 9.0 to 12.9" in code
    assert "13." not in code


def test_which_cuda_compiles_for_a_gpu_is_said_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    """By the tables, by a plan and by what is wrong with a library."""
    words = "CUDA 8.0 to 12.9"
    assert words in _fix(_on("gtx 1080", "sm_90", cuda=12), "no-code-for-gpu")
    assert main(["lookup", "gpu", "gtx 1080"]) == 0
    assert words in capsys.readouterr().out
    (row,) = api.plan("gtx 1080", cuda=["13.0"]).unserved
    assert words in row.why[0]
    extension = library("sm_90", cuda=13, needed=("libc10.so",))
    beside = judge(survey(extension), machine("6.1", torch="2.9", torch_cuda="13.0"))
    fix = _fix(beside, "no-code-for-gpu")
    assert f"{words} compiles for it, and not the CUDA of its torch" in fix
    assert "no known toolkit" not in fix


def test_the_driver_at_hand_limits_the_toolkits() -> None:
    assert "with CUDA 11.0 to 11.8:" in _fix(_on("v100", "sm_90", driver="510.39.01", cuda=11), "no-code-for-gpu")
    assert "with CUDA 12.8 to 12.9:" in _fix(_on("rtx 5090", "sm_90", driver="575.51.03"), "no-code-for-gpu")


def test_an_extension_of_torch_is_built_by_torchs_cuda() -> None:
    subject = library("sm_80", cuda=12, needed=("libc10.so",))
    verdict = judge(survey(subject), machine("9.0", driver="580.65.06", torch="2.8", torch_cuda="12.8"))
    assert "with CUDA 12.0 to 12.9:" in _fix(verdict, "no-code-for-gpu")


def test_an_older_build_is_offered_only_where_it_can_be_made_for_the_gpu() -> None:
    assert "take a build by CUDA 12.8 to 12.9" in _fix(
        _on("rtx 5090", "sm_120", cuda=13, driver="575.51.03"), "driver-below-cuda-floor"
    )
    assert "take a build" not in _fix(_on("rtx 5090", "sm_120", cuda=13, driver="550.54.14"), "driver-below-cuda-floor")


def test_no_driver_can_help_where_the_last_one_is_below_the_floor() -> None:
    for known in ({}, {"driver": "470.256.02"}):
        verdict = _on("3.7", "sm_37", cuda=12, **known)
        assert verdict.outcome == "fails"
        assert verdict.predicted_error is not None
        assert verdict.predicted_error.code == 35
        finding = next(each for each in verdict.findings if each.rule == "driver-below-cuda-floor")
        assert "branch 470 is the last to support" in finding.message
        assert "update" not in finding.fix
        assert "CUDA 7.0 to 11.8" in finding.fix


def test_after_the_update_newer_ptx_still_stands_in_the_way() -> None:
    """Driver 580 runs CUDA 13, and compiles the PTX of 13.0 only."""
    assert _errors(_on("h100", "compute_80@9.0", cuda=13, driver="535.54.03")) == ["driver-below-cuda-floor"]
    assert _errors(_on("h100", "compute_80@9.2", cuda=13, driver="535.54.03")) == [
        "driver-below-cuda-floor",
        "ptx-newer-than-driver",
    ]


def test_conditions_where_the_driver_is_not_known() -> None:
    assert "driver 570 or later, the first to support this GPU" in _on("rtx 5090", "sm_120").conditions
    assert not any("first to support" in each for each in _on("h100", "sm_90").conditions)
    assert any("branch 580 or older" in each for each in _on("v100", "sm_70").conditions)


def test_forward_compatibility_does_not_help_a_driver_that_does_not_know_the_gpu() -> None:
    assert "cuda-compat" in _fix(_on("h100", "sm_90", cuda=13, driver="535.54.03"), "driver-below-cuda-floor")
    assert "cuda-compat" not in _fix(_on("h100", "sm_90", cuda=13, driver="470.256.02"), "driver-below-cuda-floor")


def test_a_gpu_that_the_release_does_not_list_is_a_warning() -> None:
    verdict = _on("rtx 5060", "sm_120", driver="575.51.03")
    assert verdict.outcome == "native"
    assert "575.57.08 is the first that does" in " ".join(each.message for each in verdict.findings)
    assert not any(each.severity == "warning" for each in _on("rtx 5060", "sm_120", driver="580.65.06").findings)


@pytest.mark.parametrize("gpu", ["gh200", "Grace Hopper", "gb200", "gb300", "gb10", "dgx spark", "NVIDIA GH200 480GB"])
def test_grace_and_gb10_mean_arm64(gpu: str) -> None:
    assert fleet.from_gpu(gpu).cpu == "aarch64"
    assert fleet.from_gpu("h100").cpu is None


def test_the_command_line_may_say_otherwise() -> None:
    assert fleet.Refinement(cpu="x86_64").apply(fleet.from_gpu("gb10")).cpu == "x86_64"


def test_names_and_capabilities_of_the_table_are_those_of_the_others() -> None:
    table = tables().gpu_drivers
    names = [name for row in table.listed for name in row.names] + [name for row in table.host for name in row.names]
    assert all(gpus.find_gpu(name).name == name for name in names)
    with_row = {each for row in table.support for each in row.capabilities}
    for gpu in gpus.all_gpus():
        # Of a GPU that is known by its chip alone no driver is known either; its row says so.
        assert gpu.tegra or gpu.note or str(gpu.capability) in with_row, gpu.name


def test_a_listed_release_belongs_to_a_branch_that_knows_the_capability() -> None:
    for row in tables().gpu_drivers.listed:
        for name in row.names:
            support = gpus.driver_support(gpus.find_gpu(name).capability)
            assert support is not None
            assert float(row.since[0].split(".")[0]) >= float(support.first), name


def test_a_pci_id_tells_what_a_name_cannot() -> None:
    blackwell = gpus.driver_support(Capability(12, 0))
    assert gpus.driver_support_by_pci("10de:2b85") == blackwell
    assert gpus.driver_support_by_pci("10de:0640") is None
