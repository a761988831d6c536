"""What `doctor` says of installed packages, from the rules of `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuwheel.verdicts import examination
from cuwheel_core.support.finding import Finding
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine

NEW: dict[str, Any] = {"driver": "580.65.06", "os": "linux", "cpu": "x86_64", "libraries": ("libcublas.so.12",)}


def _examined(surveys: Sequence[Survey], machines: Sequence[Machine], known: Sequence[Finding]) -> tuple[Finding, ...]:
    return examination.merge_findings_of_packages(
        [examination.judge_distribution(each, machines) for each in surveys], known
    )


def test_what_is_well_says_nothing() -> None:
    wheel = survey(library("sm_90", needed=("libcublas.so.12",)))
    assert _examined([wheel], [machine(**NEW)], ()) == ()


def test_notes_are_left_out() -> None:
    assert _examined([survey(library("compute_80"))], [machine(**NEW)], ()) == ()
    assert _examined([survey(library())], [machine(**NEW)], ()) == ()


def test_one_finding_for_all_packages_that_share_it() -> None:
    surveys = [survey(library("sm_80"), name=name) for name in ("a", "b", "c", "d", "e")]
    (finding,) = _examined(surveys, [machine(**NEW)], ())
    assert finding.rule == "no-code-for-gpu"
    assert finding.message.startswith("a 1.0, b 1.0, c 1.0, d 1.0 and 1 more: it has no code")


def test_errors_come_first_and_evidence_is_short() -> None:
    many = survey(*(library("sm_80", path=f"pkg/lib{index}.so") for index in range(9)))
    missing = survey(library("sm_90", needed=("libcublas.so.13",)), name="torch-like")
    found = _examined([missing, many], [machine(**NEW)], ())
    assert {each.rule for each in found} == {"no-code-for-gpu", "cuda-major-differs"}
    assert [each.severity for each in found] == ["error", "error"]
    long = next(each for each in found if each.rule == "no-code-for-gpu")
    assert long.evidence[-1] == "and 5 more"


def test_what_the_machine_rules_said_is_not_said_again() -> None:
    old = [machine(driver="570.26", libraries=())]
    wheel = [survey(library("sm_90", cuda=13))]
    (finding,) = _examined(wheel, old, ())
    assert finding.rule == "driver-below-cuda-floor"
    said = Finding(rule="driver-too-old", severity="error", message="…")
    assert _examined(wheel, old, (said,)) == ()


def test_server_packages_on_a_jetson() -> None:
    orin = machine("8.7", gpu="Jetson AGX Orin", l4t="36.4", os="linux", cpu="aarch64", libraries=())
    wheel = survey(library("sm_80", platform="sbsa", machine="aarch64"), name="bitsandbytes-like")
    (finding,) = _examined([wheel], [orin], ())
    assert finding.rule == "sbsa-on-l4t"
    assert finding.message.startswith("bitsandbytes-like 1.0: it is built for servers")
