"""One model of reach: `inspect`'s sentence and `check`'s verdict cannot differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Machine
from cuwheel.proving import predictions
from cuwheel.verdicts import judge
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts import modules as module_table
from cuwheel_core.verdicts import predict
from tests.fixtures import manifest
from tests.unit.verdicts.subjects import library, machine
from tests.unit.verdicts.subjects import survey as made

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel_core.device_code.libraries import Library

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
FIXTURES = [each.file for each in manifest.load()]


def _from_inspect(found: Survey) -> dict[str, str]:
    (subject,) = found.libraries
    covered = predict.coverage_of(subject)
    assert covered
    known = [str(each) for each in gpus.current_capabilities()]
    how = dict.fromkeys(known, "fails")
    for name in ("native", "jit", "partial"):
        how |= dict.fromkeys(getattr(covered, name), name)
    return how | {"newer": "jit" if covered.future else ""}


def _from_check(found: Survey) -> dict[str, str]:
    known = [str(each) for each in gpus.current_capabilities()]
    newer = f"{int(known[-1].split('.')[0]) + 1}.0"
    verdicts = judge.judge_all(
        found, [Machine(name=each, capability=Capability.parse(each)) for each in (*known, newer)]
    )
    how = {each.machine: each.outcome.replace("compatible", "native") for each in verdicts}
    last = how.pop(newer)
    return how | {"newer": last if last == "jit" else ""}


@pytest.mark.parametrize("file", FIXTURES)
def test_inspect_and_check_agree_gpu_by_gpu(file: str) -> None:
    found = survey(BIN / file, detail="containers")
    (subject,) = found.libraries
    if predict.coverage_of(subject) is None:
        assert set(_from_check(found).values()) == {"fails" if file == "amd.so" else "unknown", ""}
        return
    assert _from_inspect(found) == _from_check(found)


@pytest.mark.parametrize(
    "subject",
    [
        library("sm_80", linked=("sm_80",), objects=("compute_80",)),
        library("sm_90", *["sm_80"] * 20, *["sm_100"] * 5),
        library("compute_75", "sm_90", linked=("sm_100",)),
        library(path="pkg/libnccl.so.2", *("sm_80", "sm_90")),  # noqa: B026 - the name is what counts
        # With a runtime of CUDA 12 it would fail on Kepler, whatever is in it.
        replace(library("sm_90", runtime=False), registration=replace(library("sm_90").registration, wrappers=())),
    ],
)
def test_they_agree_on_what_no_fixture_is_like(subject: Library) -> None:
    found = made(subject, name=None)
    if predict.coverage_of(subject) is None:
        assert set(_from_check(found).values()) == {"unknown", ""}
        return
    assert _from_inspect(found) == _from_check(found)


def test_modules_are_found_once_for_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the verdicts and every rule beside them, and by the forecasts of a kit, which ask hundreds of times."""
    calls: list[str] = []
    found = module_table.without_kernels

    def counted(subject: Library) -> frozenset[int]:
        calls.append(subject.path)
        return found(subject)

    monkeypatch.setattr(module_table, "without_kernels", counted)
    judge.judge_all(made(library("sm_86"), library("sm_87", path="pkg/b.so")), [machine("8.7"), machine("8.9")])
    assert sorted(calls) == ["pkg/b.so", "pkg/libpkg.so"]
    calls.clear()
    predictions.predict_everywhere(made(library("sm_90 compute_90@8.0")))
    assert calls == ["pkg/libpkg.so"]


def test_a_container_without_kernels_fails_nobody() -> None:
    (subject,) = survey(BIN / "default-130.so", detail="containers").libraries
    assert sorted(each.without_kernels for each in subject.containers) == [False, True, True]
    on = {
        each: predict.reach_of(subject).on(machine(each, driver="580.65.06")) for each in ("7.5", "8.0", "9.0", "10.0")
    }
    assert {each.outcome for each in on.values()} == {"jit"}
    assert {each.containers.none for each in on.values()} == {0}


def test_a_library_that_holds_no_kernel_has_nothing_to_fail() -> None:
    subject = library("sm_75")
    nothing = replace(subject, containers=(replace(subject.containers[0], without_kernels=True),))
    verdict = judge.judge(made(nothing), machine("9.0"))
    assert verdict.outcome == "unknown"
    assert [each.rule for each in verdict.findings] == ["no-device-code"]
    assert "no kernel" in verdict.findings[0].message


def test_a_device_link_counts_while_its_objects_may_have_kernels() -> None:
    subject = library(linked=("sm_75",), objects=("sm_80",))
    linked, *objects = subject.containers
    torn = replace(subject, containers=(replace(linked, without_kernels=True), *objects))
    assert predict.reach_of(torn).on(machine("9.0")).outcome == "fails"
