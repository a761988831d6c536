"""The gate judges a finished wheel as `check` does, on every machine that it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.building import gate, job_run
from cuwheel.machine.fleet import Machine, machines_named
from cuwheel_core.device_code.libraries import Platform
from tests.unit.building.wheels import found, judge, rules, wheel
from tests.unit.verdicts.subjects import library, survey

if TYPE_CHECKING:
    from pathlib import Path

PLAN = "sm_80 sm_90 compute_90"
CODE: dict[str, bytes | str] = {"demo/libplain.so": "plain-130.so"}


def test_a_machine_with_another_processor_or_system_is_not_passed(tmp_path: Path) -> None:
    path = wheel(tmp_path, CODE)
    on_windows = Machine(name="desk", capability=machines_named(["a100"])[0].capability, os="windows")
    for machine in (*machines_named(["orin", "gh200"]), on_windows):
        result = judge(path, PLAN, machines=(machine,))
        assert not result.succeeded
        assert found(result, "fails-on-planned-machine").message.startswith(
            f"it is for {machine.name}, and fails there: "
        )


def test_a_condition_passes_and_is_told(tmp_path: Path) -> None:
    result = judge(wheel(tmp_path, CODE), PLAN, machines=machines_named(["h100", "a100"]))
    assert rules(result) == set()
    told = [each.message for each in result.findings if each.rule == "runs-on-condition"]
    assert len(told) == 1
    assert told[0].startswith("it runs on h100, a100 if ")
    assert "580" in told[0]


def test_what_an_environment_holds_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Another Python is another job's, and what pip can bring is not there yet."""
    (machine,) = machines_named(["h100"])
    known: dict[str, Any] = {each: getattr(machine, each) for each in ("capability", "gpu", "product")}
    here = Machine(name="here", python="3.8", libraries=(), os="linux", cpu="x86_64", **known)
    assert judge(wheel(tmp_path, CODE, tag="cp312-cp312-linux_x86_64"), PLAN, machines=(here,)).succeeded


@pytest.mark.parametrize(
    ("cuda", "where", "l4t", "outcome"),
    [
        (12, "sbsa", None, "fails"),
        (12, "l4t", None, "native"),
        (13, "sbsa", None, "native"),
        (13, "sbsa", "39.2", "native"),
        (13, "sbsa", "36.4", "unknown"),
    ],
)
def test_own_machine_code_does_not_make_a_server_build_run_on_l4t(
    cuda: int, where: Any, l4t: str | None, outcome: str
) -> None:
    """What tells is the toolkit that built it: the wheel itself says nothing of it."""
    made = survey(library(linked=("sm_87",), path="demo/libdemo.so", cuda=cuda, machine="aarch64"))
    (orin,) = machines_named(["orin"])
    machine = Machine(
        name="orin", capability=orin.capability, gpu=orin.gpu, os="linux", cpu="aarch64", tegra=True, l4t=l4t
    )
    (verdict,) = gate.verdicts_on(made, [machine], Platform(name=where, evidence="as built"))
    assert verdict.outcome == outcome
    if (cuda, where, l4t) == (13, "sbsa", None):
        assert any(each.startswith("JetPack 7.2") for each in verdict.conditions)


@pytest.mark.parametrize(
    ("provider", "targets", "cpu", "name"),
    [
        ("system", ["sbsa-linux"], "aarch64", "sbsa"),
        ("system", ["aarch64-linux"], "aarch64", "l4t"),
        ("system", ["aarch64-linux", "sbsa-linux"], "aarch64", None),
        ("system", [], "aarch64", None),
        ("redist", [], "aarch64", "sbsa"),
        ("system", ["sbsa-linux"], "x86_64", None),
    ],
)
def test_a_toolkit_tells_its_distribution_by_its_files(
    provider: str, targets: list[str], cpu: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: cpu)
    for each in targets:
        (tmp_path / "targets" / each).mkdir(parents=True)
    found = job_run.arm64_distribution(provider, tmp_path)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(("l4t", "name"), [(False, "sbsa"), (True, "l4t")])
def test_what_is_built_for_another_processor_is_for_whom_its_toolkit_was_chosen(
    l4t: bool,  # noqa: FBT001
    name: str,
    tmp_path: Path,
) -> None:
    made = job_run.arm64_distribution("index", tmp_path, "aarch64", l4t=l4t)
    assert made
    assert made.name == name


def test_what_was_compiled_for_this_processor_is_refused_where_another_was_asked_for(tmp_path: Path) -> None:
    path = wheel(tmp_path, CODE)
    refused = judge(path, PLAN, cpu="aarch64")
    assert not refused.succeeded
    assert found(refused, "wrong-processor").evidence == ("demo/libplain.so is for x86_64",)
    assert judge(path, PLAN, cpu="x86_64").succeeded
