"""`cuwheel plan` as people and scripts call it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import cuwheel
from cuwheel import api
from cuwheel.cli import main
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.report import terminal
from cuwheel.report.answer import SCHEMAS, document_of
from cuwheel.support.answer import to_json
from cuwheel.verdicts.planning import plans
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.facts.arch import Capability
from tests.unit.verdicts.libraries import code, library
from tests.unit.verdicts.planning.test_sizes import survey as surveyed

if TYPE_CHECKING:
    from pathlib import Path

FLEET = """\
[[machine]]
name = "trainers"
gpu = "h100"
driver = "580.65.06"
torch_cuda = "13.0"
count = 8

[[machine]]
name = "old rack"
gpu = "v100"
driver = "535.104.05"
torch_cuda = "12.1"
count = 40
"""


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET)
    return str(path)


def shown(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert main(["plan", *words]) == status
    return capsys.readouterr().out


def answer(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    found = json.loads(shown([*words, "--json"], capsys, status))
    jsonschema.validate(found, json.loads((SCHEMAS / "plan-1.json").read_text()))
    return found


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_case_2(capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = answer(["--for", "h100,l40", "--for", "rtx 4090", "--cuda", "12.8"], capsys)["jobs"]
    assert (job["cuda"], job["archs"], job["ptx"]) == ("12.8", ["sm_89", "sm_90"], [])
    assert job["flags"]["cmake"] == "89-real;90-real"
    assert job["flags"]["bitsandbytes"] is None
    assert job["spellings"]["bitsandbytes"]["nearest"] == "89;90"
    assert [row["machine"] for row in job["coverage"]] == ["h100", "l40", "rtx 4090"]
    text = shown(["--for", "h100,l40", "--cuda", "12.8"], capsys)
    assert "CUDA 12.8: sm_89 sm_90" in text
    assert "Runs on 8.9, 9.0 and nowhere else." in text
    assert "nearest: 89;90" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_fleet_gets_the_fewest_toolkits(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(["--for", fleet], capsys)
    assert [(job["cuda"], job["archs"]) for job in found["jobs"]] == [("12.1", ["sm_70"]), ("13.0", ["sm_90"])]
    text = shown(["--for", fleet, "--verbose"], capsys)
    assert "Left to another job:" in text
    assert "its torch is built with CUDA 13.0: what CUDA 12.1 builds" in " ".join(text.split())


def test_who_is_not_served_makes_the_status_1(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(["--for", fleet, "--cuda", "13.0"], capsys, 1).split())
    assert "Not served: 40 machines" in text
    assert "7.0 old rack its driver (CUDA 12.2) is too old for CUDA 13.0" in text
    assert "fix: --cuda 12.9" in text
    assert "Left to another job" not in text
    text = shown(["--for", "v100", "--cuda", "13.0"], capsys, 1)
    assert "CUDA 13.0: nothing to build" in text
    assert "note: CUDA 13.0 serves none of these machines" in text
    assert "Not served: one machine" in text


def test_many_machines_in_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    machines = [
        Machine(name=f"n{index}", capability=Capability.parse("9.0"), driver="580.65.06") for index in range(300)
    ]
    made = api.plan(*machines)
    terminal.write(document_of(made, verbose=False), sys.stdout)
    text = capsys.readouterr().out
    assert "n0, n1, n2, n3 and 296 more" in text
    assert len(text.splitlines()) < 30
    odd = [Machine(name=f"n{index}", capability=Capability.parse(f"1.{index}")) for index in range(10)]
    odd += [Machine(name=f"m{index}", capability=Capability.parse(f"2.{index}")) for index in range(10)]
    odd += [Machine(name=f"o{index}", capability=Capability.parse(f"3.{index}")) for index in range(5)]
    terminal.write(document_of(api.plan(*odd), verbose=False), sys.stdout)
    assert "more kinds of machine (--verbose)" in capsys.readouterr().out


def test_all(capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = answer(["--for", "all", "--cuda", "13.0", "--want", "future"], capsys)["jobs"]
    assert job["archs"] == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120"]
    assert job["ptx"] == ["compute_120"]
    assert job["flags"]["torch"] == "7.5;8.0;9.0;10.0;11.0;12.0+PTX"


def test_case_3_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(["--read", "75;80;90", "--on", "orin"], capsys)
    flat = " ".join(text.split())
    assert "8.7 is served by sm_80: machine code runs on later minors of its major." in flat
    assert "but NVIDIA promises nothing between the two (sm_80 code was seen running on an Orin" in flat
    assert "the list is not the problem on a Jetson: L4T is. Below CUDA 13.0 arm64 has two toolkits" in flat
    assert max(map(len, text.splitlines())) <= 80
    found = answer(["--read", "75;80;90", "--on", "orin"], capsys)
    assert found["jobs"] == []
    assert found["reading"]["machines"][0]["by"] == "sm_80"


def test_a_list_that_does_not_serve_or_means_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "t4: not served" in shown(["--read", "8.0;9.0+PTX", "--on", "t4"], capsys, 1)
    shown(["--read", "9.0;wat"], capsys, 1)
    shown(["--read", "native", "--on", "t4"], capsys, 0)
    assert "(read as cargo's)" in shown(["--read", "89", "--as", "cargo"], capsys)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, ["no machine to plan for was given"]),
        (["--for", ", ,"], 2, ["--for: it must not be empty"]),
        (["--for", "rtx 9999"], 2, ["no GPU named 'rtx 9999'"]),
        (["--for", "h100", "--cuda", "14.7"], 2, ["no CUDA toolkit named '14.7'"]),
        (["--for", "h100", "--cuda", " ,"], 2, ["--cuda: it must not be empty"]),
        (
            ["--for", "h100", "--driver", "new", "--torch-cuda", "cpu"],
            2,
            ["--driver: 'new' is not a driver version", "--torch-cuda: 'cpu' is not a CUDA version"],
        ),
        (["--read", "90", "--on", "h100", "--driver", "x"], 2, ["--driver: 'x' is not a driver version"]),
        (["--for", "nowhere.toml"], 2, ["nowhere.toml"]),
        (["--for", "h100", "--want", "future,no-ptx"], 2, ["future and no-ptx cannot be wanted together"]),
        (["--read", "90", "--for", "h100", "--want", "future"], 2, ["--for, --want cannot be used with --read"]),
        (["--on", "h100", "--as", "cmake"], 2, ["--as, --on needs an existing list"]),
        (["--read", "90", "--as", "bazel"], 2, ["--as: 'bazel' is not one of cmake"]),
        (["--read", " "], 2, ["--read: it must not be empty"]),
        (["--read", "90", "--cuda", "12.8,13.0"], 2, ["one CUDA version at a time"]),
        (
            [
                "--for",
                "v100,rtx9999,titanic",
                "--cuda",
                "13.0,99.1",
                "--want",
                "specific,family,future,no-ptx",
                "--driver",
                "x",
            ],
            2,
            [
                "the command line has 4 problems:",
                "no GPU named 'rtx9999'",
                "no GPU named 'titanic'",
                "no CUDA toolkit named '99.1'",
                "'x' is not a driver version",
                "future and no-ptx cannot be wanted together",
                "specific and family cannot be wanted together",
            ],
        ),
    ],
)
def test_bad_input_all_at_once(
    words: list[str], code: int, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == code
    said = capsys.readouterr()
    assert said.out == ""
    for each in told:
        assert each in said.err


def test_a_version_of_cmake_is_one() -> None:
    with pytest.raises(UsageError, match="'new' is not a version of CMake"):
        cuwheel.plan("h100", cmake="new")


def test_the_size_to_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = surveyed(library([code("sm_80", bytes=4_000_000), code("sm_90", bytes=6_000_000)], toolkits=("12.8.93",)))
    monkeypatch.setattr("cuwheel.api.reading.survey_target", lambda _target: old)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.whl").touch()
    words = ["--for", "h100", "--cuda", "12.8", "--like", "old.whl"]
    (job,) = answer(words, capsys)["jobs"]
    assert job["size"]["bytes"] == 6_010_000
    text = " ".join(shown(words, capsys).split())
    assert "predicted size 6.0 MB, -40 % against 10.0 MB" in text
    assert "estimated: unpacked size of libmine.so of old.whl, built by CUDA 12.8" in text


def test_the_verb_is_a_function_however_often_it_is_called() -> None:
    for _ in range(2):
        assert cuwheel.plan("h100", cuda=["12.8"]).jobs[0].archs == ("sm_90",)


def test_answers_are_valid_by_the_schema() -> None:
    schema = json.loads((SCHEMAS / "plan-1.json").read_text())
    for made in (
        api.plan("all", native=True),
        api.plan("v100", cuda=["13"]),
        api.read_list("Ampere", on=["orin", "t4"]),
    ):
        jsonschema.validate(json.loads(to_json(made)), schema)


MIXED = """\
[[machine]]
name = "trainers"
gpu = "h100"
os = "linux"
cpu = "x86_64"

[[machine]]
name = "racks"
gpu = "l40"

[[machine]]
name = "desks"
gpu = "rtx 4090"
os = "windows"

[[machine]]
name = "servers"
gpu = "gh200"

[[machine]]
name = "robots"
gpu = "orin"
l4t = "36.4.3"
"""


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    path = tmp_path / "mixed.toml"
    path.write_text(MIXED)
    return str(path)


def parts(made: cuwheel.Plan) -> list[tuple[str, str, str, str]]:
    """Each job: its CUDA, its platform, its list and its machines."""
    return [
        (job.cuda, str(job.platform), " ".join(job.archs), " ".join(each.machine for each in job.coverage))
        for job in made.jobs
    ]


def test_a_job_is_for_one_system_and_processor(mixed: str) -> None:
    """What does not say its platform is like this machine, as a build takes it."""
    assert parts(api.plan(mixed, cuda=["12.6"])) == [
        ("12.6", "linux x86_64", "sm_89 sm_90", "trainers racks"),
        ("12.6", "windows", "sm_89", "desks"),
        ("12.6", "linux aarch64 (SBSA)", "sm_90", "servers"),
        ("12.6", "linux aarch64 (L4T)", "sm_87", "robots"),
    ]
    joined = parts(api.plan("gh200", "orin", cuda=["13.2"]))  # one distribution for both
    assert joined == [("13.2", "linux aarch64", "sm_87 sm_90", "gh200 orin")]
    # The toolkits are chosen for each platform: a robot's driver does not hold a server back.
    assert [job.cuda for job in api.plan("h100", mixed).jobs if str(job.platform) == "linux x86_64"] == [
        job.cuda for job in api.plan("h100", "l40").jobs
    ]


@pytest.mark.parametrize("cuda", [(), ("12.6",), ("13.2",), ("12.8", "13.0")])
@pytest.mark.parametrize("place", [("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64")])
def test_a_build_has_the_jobs_of_the_plan_for_its_platform(
    mixed: str, cuda: tuple[str, ...], place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: place[1])
    monkeypatch.setattr(sys, "platform", "win32" if place[0] == "windows" else "linux")
    named = [mixed] if place[1] == "x86_64" else ["gh200", "h100"]
    built = plans.plan_for(named, cuda, PlanOptions(), built_on=place)
    planned = plans.plan_for(named, cuda, PlanOptions())
    here = [job for job in planned.jobs if (job.platform.os or place[0], job.platform.cpu or place[1]) == place]
    assert built.jobs == tuple(here)
    assert built.jobs


def test_what_has_one_platform_does_not_speak_of_it(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(["--for", "h100,l40", "--cuda", "13.0"], capsys).startswith("CUDA 13.0: sm_89 sm_90\n")
    text = shown(["--for", mixed, "--cuda", "12.6"], capsys)
    assert "CUDA 12.6, linux aarch64 (L4T): sm_87" in text
    assert "CUDA 12.6, linux x86_64: sm_89 sm_90" in text
    assert "CUDA 13.0, platform not given: sm_90" in shown(["--for", "h100,gh200", "--cuda", "13.0"], capsys)


def test_all_are_the_gpus_that_have_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """An example of the help: it says that each has code of its own, and 10.7 has none of CUDA 13.0."""
    (job,) = answer(["--for", "all", "--cuda", "13.0", "--want", "native"], capsys)["jobs"]
    assert {each["how"] for each in job["coverage"]} == {"native"}
    assert "10.7" in " ".join(job["notes"])
    (plain,) = answer(["--for", "all", "--cuda", "13.0"], capsys)["jobs"]
    assert "10.7" in [each["machine"] for each in plain["coverage"]]
    assert plain["platform"] == {"os": None, "cpu": None, "l4t": None}
