"""What a CI service shows of `check`: a summary, annotations, JUnit's XML, SARIF; and what a file must be."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.machine import probe
from cuwheel.report import for_ci
from tests.fixtures import systems
from tests.unit.building.wheels import wheel
from tests.unit.verdicts.machines import MACHINES

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
NO_GPU = next(machine for machine in MACHINES if not machine.profile.gpus).profile
LIBRARY = "plain-130.so"  # sm_80 sm_90 compute_90
_COMMAND = re.compile(r"::(error|warning) file=([^:,]+),title=cuwheel ([a-z-]+)::(.+)")


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(BIN / LIBRARY, tmp_path / "lib a.so")
    words = [
        "check",
        "lib a.so",
        "--on",
        "h100,v100",
        "--max-size",
        "1kB",
        "--archs",
        "sm_90,compute_90",
        "--report",
        "out",
    ]
    assert main(words) == 1
    return tmp_path / "out"


def test_the_summary_has_the_matrix_and_what_is_wrong(reported: Path) -> None:
    text = (reported / "summary.md").read_text()
    assert "| **h100** 9.0 | ✅ native" in text
    assert "| **v100** Tesla V100 7.0 | ❌ fails error 209 |" in text
    assert "- ❌ `wheel-over-budget` it is 14.5 kB and at most 1.0 kB is allowed" in text
    assert "| lib a.so | 14.5 kB | sm\\_80 compute\\_90 sm\\_90 |" in text


def test_each_annotation_is_one_command(reported: Path) -> None:
    found = [_COMMAND.fullmatch(line) for line in (reported / "annotations.txt").read_text().splitlines()]
    assert [each and each[3] for each in found] == ["wheel-over-budget", "architecture-not-planned", "no-code-for-gpu"]
    assert {each[2] for each in found if each} == {"lib a.so"}
    assert all("%0Afix: " in each[4] for each in found if each)


def test_junit_has_a_case_for_each_machine_and_one_for_the_file(reported: Path) -> None:
    (suite,) = ET.parse(reported / "junit.xml").getroot()  # noqa: S314 - our own
    assert [suite.get(each) for each in ("tests", "failures", "errors", "skipped")] == ["3", "2", "0", "0"]
    cases = {case.get("name"): [each.tag for each in case] for case in suite}
    assert cases == {"size and architectures": ["failure"], "h100": [], "v100": ["failure"]}
    assert "error 209" in (suite[2][0].get("message") or "")


def test_sarif_has_what_its_readers_need(reported: Path) -> None:
    """By name; its schema and GitHub's own rules are asked in tests/integration/test_check_report.py."""
    (run,) = json.loads((reported / "check.sarif").read_text())["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    assert all(each["help"]["text"] and each["fullDescription"]["text"] for each in run["tool"]["driver"]["rules"])
    assert [rules[each["ruleIndex"]] for each in run["results"]] == [each["ruleId"] for each in run["results"]]
    places = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in run["results"]}
    assert places == {"lib%20a.so"}
    known = [each["partialFingerprints"]["primaryLocationLineHash"] for each in run["results"]]
    assert len(set(known)) == len(known) == 3


def test_what_nobody_can_tell_and_what_has_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda *_, **__: NO_GPU)
    without = wheel(tmp_path, {"demo/__init__.py": b""}, tag="py3-none-any")
    for target, on, kind in ((without, ["h100"], "skipped"), (BIN / "names-130.so", [], "error")):
        (suite,) = ET.fromstring(for_ci.junit(api.check(target, on=on)))  # noqa: S314 - our own
        assert [each.tag for each in suite[1]] == [kind]


def test_a_file_as_it_should_be(tmp_path: Path) -> None:
    target = wheel(tmp_path, {"demo/libplain.so": LIBRARY})
    answer = api.check(target, on=["h100"], max_size=10**6, archs=["sm_80", "sm_90", "compute_90"])
    assert answer.succeeded
    (own,) = answer.targets
    assert (own.findings, own.archs, own.size) == ((), ("sm_80", "compute_90", "sm_90"), target.stat().st_size)
    missing = api.check(target, on=["h100"], archs=["sm_80", "sm_90", "sm_100", "compute_90"])
    assert [each.rule for each in missing.targets[0].findings] == ["planned-architecture-missing"]
    assert not missing.succeeded
    assert missing.verdicts[0].outcome != "fails"


def test_text_of_others_begins_no_command_and_ends_no_element(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evil = systems.named("a\n::error::b<b>%0A|`,x=1:\x1b.so")
    shutil.copy(BIN / LIBRARY, tmp_path / evil)
    answer = api.check(evil, on=["v100"])
    lines = for_ci.github_annotations(answer).splitlines()
    assert all(line.startswith(("::error file=", "::warning file=")) for line in lines)
    assert "a\ufffd%3A%3Aerror%3A%3Ab<b>%250A|`%2Cx=1%3A\ufffd.so,title=" in lines[0]
    assert ET.fromstring(for_ci.junit(answer))[0].get("name") == wording_of(evil)  # noqa: S314 - our own
    assert "\n::error" not in for_ci.summary(answer)
    assert "<b>" not in for_ci.summary(answer)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_name_that_is_no_text_and_a_file_elsewhere(tmp_path: Path) -> None:
    """By its whole address, which needs no UTF-8."""
    name = os.fsdecode(b"\xff.so")
    shutil.copy(BIN / LIBRARY, tmp_path / name)
    answer = api.check(tmp_path / name, on=["v100"])
    (run,) = json.loads(for_ci.sarif(answer))["runs"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == f"{tmp_path.as_uri()}/%FF.so"
    assert "\ufffd.so" in for_ci.github_annotations(answer)


def wording_of(name: str) -> str:
    return name.replace("\n", "\ufffd").replace("\x1b", "\ufffd")
