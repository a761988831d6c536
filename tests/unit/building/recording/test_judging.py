"""Which failure mattered, where the time went, and what other programs are given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.building.recording import command
from cuwheel.building.recording.calls import Call, Phase, Record, ResponseFile, first_failure, summarize
from cuwheel.building.recording.command import Failure, Recorded
from cuwheel.report.answer import document_of

if TYPE_CHECKING:
    from pathlib import Path


def call(number: int, *words: str, state: str = "succeeded", **more: Any) -> Call:
    status = {"succeeded": 0, "failed": 1}.get(state)
    told: dict[str, Any] = {"tool": "nvcc", "name": "nvcc", "program": "/x/nvcc", "cwd": "/src", "status": status}
    told |= {"began": float(number), "ended": number + 0.5, "state": state}
    return Call(number=number, words=words, **(told | more))


def record(*calls: Call, status: int | None = 1) -> Record:
    return Record(
        folder="/r",
        command=("make",),
        cwd="/src",
        began="",
        seconds=10.0,
        status=status,
        environment={},
        masked=True,
        calls=calls,
    )


TRIALS: list[tuple[tuple[str, ...], str]] = [
    (("-c", "x.cu"), "/b/CMakeFiles/CMakeScratch/TryCompile-Ab1"),
    (("-c", "x.cu"), "/b/CMakeFiles/CMakeTmp"),
    (("-c", "CMakeCUDACompilerId.cu"), "/b/CMakeFiles/3.25.1/CompilerIdCUDA"),
    (("-c", "/tmp/conftest.c"), "/src"),
    (("-c", "testfile.c"), "/b/meson-private/tmpx1"),
    (("-c", "/t/flag_check.cpp"), "/src"),
    (("--version",), "/src"),
    (("-v",), "/src"),
    ((), "/src"),
]


@pytest.mark.parametrize(("words", "cwd"), TRIALS)
def test_trials_do_not_matter(words: tuple[str, ...], cwd: str) -> None:
    trial = call(1, *words, cwd=cwd, state="failed")
    real = call(2, "-c", "real.cu", state="failed")
    assert first_failure(record(trial, call(3, "-c", "y.cu"))) is None
    assert first_failure(record(trial, real)) == real


def test_the_last_trial_matters_where_the_build_ended_with_it() -> None:
    first, last = (call(number, *TRIALS[0][0], cwd=TRIALS[0][1], state="failed") for number in (1, 2))
    assert first_failure(record(first, last)) == last
    assert first_failure(record(first, last, status=0)) is None


def test_the_first_to_fail_not_the_first_to_begin() -> None:
    slow = call(1, "-c", "slow.cu", state="failed", ended=9.0)
    quick = call(2, "-c", "quick.cu", state="signalled", signal=11)
    assert first_failure(record(slow, quick)) == quick


def test_what_was_tried_again_and_worked_does_not_matter() -> None:
    failed = call(1, "-c", "a.cu", "-o", "a.o", state="failed")
    assert first_failure(record(failed, call(2, "-O1", "-c", "a.cu", "-o", "a.o"))) is None
    assert first_failure(record(failed, call(2, "-c", "a.cu", "-o", "a.o", cwd="/other"))) == failed


def test_a_call_that_could_not_start_matters() -> None:
    assert first_failure(record(call(1, "-c", "a.cu", state="not-started", ended=None, problem="no"))) is not None


def test_where_the_time_went() -> None:
    phases = (
        Phase(name="cicc", file="a.cu", arch="compute_90", seconds=0.3),
        Phase(name="ptxas", file="a.cu", arch="sm_90", seconds=0.1),
    )
    calls = (
        call(1, "-arch=sm_90", "-c", "a.cu", phases=phases),
        call(2, "-arch=sm_80", "-c", "a.cu", ended=5.0, phases=phases[:1]),
        call(3, "a.o", "-o", "x.so"),
        call(4, "-c", "b.cu", state="started", ended=None),
    )
    found = summarize(record(*calls, status=0))
    assert [(each.file, each.seconds, each.calls) for each in found.files] == [("a.cu", 3.5, 2), ("b.cu", 0.0, 1)]
    assert found.files[0].archs == ("sm_90", "compute_90", "sm_80", "compute_80")
    assert [(each.name, each.runs) for each in found.phases] == [("cicc", 2), ("ptxas", 1)]
    assert [each.number for each in found.longest] == [2, 1, 3]
    assert (found.calls, found.unfinished, found.busy) == (4, 1, 4.0)


def test_a_timeline_has_no_overlaps_in_a_row(tmp_path: Path) -> None:
    phases = tuple(Phase(name=f"p{index}", file="", arch="", seconds=1.0) for index in range(3))
    calls = [
        call(1, "-c", "a.cu", ended=5.0, phases=phases),
        call(2, "-c", "b.cu", ended=2.5),
        call(3, "-c", "c.cu", state="started", ended=None),
    ]
    command.save_trace(record(*calls), tmp_path / "trace.json")
    events = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in events if event["pid"] == 1} == {"nvcc a.cu", "nvcc b.cu", "nvcc c.cu"}
    for one in events:
        for other in events:
            same_row = (one["pid"], one["tid"]) == (other["pid"], other["tid"]) and one is not other
            assert (
                not same_row or one["ts"] + one["dur"] <= other["ts"] + 1 or other["ts"] + other["dur"] <= one["ts"] + 1
            )
    inner = [event for event in events if event["pid"] == 2]
    assert [event["name"] for event in inner] == ["p0", "p1", "p2"]


def test_phases_side_by_side_stay_within_their_call(tmp_path: Path) -> None:
    phases = tuple(Phase(name="cicc", file="", arch="", seconds=1.0) for _ in range(4))
    command.save_trace(record(call(1, "-t4", "a.cu", ended=3.0, phases=phases)), tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") <= 3_000_001


def test_compile_commands(tmp_path: Path) -> None:
    calls = (
        call(1, "-c", "x.cu", cwd="/b/CMakeFiles/CMakeTmp"),
        call(2, "-O0", "-c", "a.cu", "-o", "a.o"),
        call(3, "-O2", "-c", "a.cu", "-o", "a.o"),
        call(4, "a.o", "-o", "x.so"),
        call(5, "gcc", "-c", "h.c", tool="cache", name="ccache", program="/usr/bin/ccache"),
        call(6, "-c", "\udcff.cu"),
    )
    command.save_compile_commands(record(*calls), tmp_path / "c.json")
    found = json.loads((tmp_path / "c.json").read_text())
    assert found[0] == {
        "directory": "/src",
        "arguments": ["/x/nvcc", "-O2", "-c", "a.cu", "-o", "a.o"],
        "file": "a.cu",
        "output": "a.o",
    }
    assert found[1]["arguments"] == ["gcc", "-c", "h.c"]
    assert found[2]["file"] == "\udcff.cu"
    assert len(found) == 3


def answer(failure: Failure | None, status: int) -> Recorded:
    found = summarize(record(call(1, "-c", "a.cu", state="failed" if failure else "succeeded"), status=status))
    return Recorded(
        folder="/r",
        command=("make",),
        status=status,
        exit_status=status,
        masked=True,
        damaged=0,
        summary=found,
        failure=failure,
    )


def test_the_report_shows_the_first_error() -> None:
    output = "\n".join([f"note {index}" for index in range(100)] + ["a.cu(7): error: no"] + ["more"] * 50)
    told: dict[str, Any] = {
        "number": 1,
        "command": "nvcc a.cu",
        "cwd": "/src",
        "state": "failed",
        "status": 2,
        "signal": None,
    }
    told |= {
        "problem": "",
        "files": ("a.cu",),
        "archs": ("sm_90",),
        "output": output,
        "causes": (),
        "replay": "cuwheel record replay r:1",
    }
    text = repr(document_of(answer(Failure(**told), 2), verbose=False))
    assert "a.cu(7): error: no" in text
    assert "lines 99–123 of 151" in text
    assert "note 10'" not in text
    assert "and the build went on" not in text
    assert "and the build went on" in repr(document_of(answer(Failure(**told), 0), verbose=False))
    silent = told | {"output": "", "signal": "SIGSEGV", "state": "signalled"}
    text = repr(document_of(answer(Failure(**silent), 2), verbose=True))
    assert "It printed nothing" in text
    assert "was ended by SIGSEGV" in text


@pytest.mark.parametrize(
    ("words", "cwd"),
    [
        (("--push-state", "--pop-state"), "/b"),
        (("-print-prog-name=ld",), "/b"),
        (("-E", "-dM", "-x", "c", "/dev/null"), "/b"),
        (("-c", "/tmp/tmpab12_xyz.cpp", "-o", "/tmp/tmpab12_xyz.o"), "/b"),
        (("-c", "_configtest.c"), "/b"),
        (("-c", "x.cpp", "-o", "cmTC_1a2b3.dir/src.cxx.o"), "/b/CMakeFiles/CMakeScratch/TryCompile-x"),
    ],
)
def test_an_answer_is_no_reason_to_stop(words: tuple[str, ...], cwd: str) -> None:
    """Other trials worked: whoever asked this one decided what its failure means."""
    worked = call(1, "-c", "ok.cpp", cwd=TRIALS[0][1])
    assert first_failure(record(worked, call(2, *words, cwd=cwd, state="failed"))) is None


def test_a_compiler_that_does_not_work_is_one() -> None:
    worked = call(1, "-c", "CMakeCXXCompilerId.cpp", cwd=TRIALS[2][1])
    broken = call(2, "-c", "/b/CMakeFiles/CMakeScratch/TryCompile-x/testCXXCompiler.cxx", state="failed")
    assert first_failure(record(worked, broken)) == broken


def test_what_a_response_file_names_is_compiled() -> None:
    files = (ResponseFile(path="x.rsp", text="-shared a.o b.o -o x.so"),)
    linked = call(1, "@x.rsp", state="failed", response_files=files)
    assert first_failure(record(linked, call(2, "-c", "y.cu"))) == linked
