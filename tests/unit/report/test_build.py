from __future__ import annotations

import hashlib
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.building.answer import Build, Calls, calls_of
from cuwheel.building.recording.calls import Phase
from cuwheel.diagnosis.failures import described as failure_of
from cuwheel.report import html, terminal
from cuwheel.report.answer import document_of
from cuwheel.report.build import blocks, write_beside_wheels
from cuwheel.support import codec
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import wording
from cuwheel_core.verdicts.condition import condition
from tests.unit.building.wheels import call, record
from tests.unit.report.builds import EVIL, FAILED, REFUSED, SPANS, build, job, span, wheel

if TYPE_CHECKING:
    from cuwheel.report.drawings import Timeline


def shown(answer: Build, monkeypatch: pytest.MonkeyPatch, *, verbose: bool = False, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    terminal.write(document_of(answer, verbose=verbose), stream)
    return stream.getvalue()


@pytest.mark.parametrize("verbose", [False, True])
def test_it_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch, *, verbose: bool) -> None:
    text = shown(build(job(), FAILED, REFUSED), monkeypatch, verbose=verbose)
    # What is to be copied is never wrapped.
    lines = [line for line in text.splitlines() if "/bin/nvcc -c" not in line and "run it again" not in line]
    assert max(map(len, lines)) <= 80
    assert text.splitlines()[0] == "demo 1.0: 1 of 3 wheels in 2 min 5 s"


def test_a_dry_run_says_on_which_conditions_machines_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of `plan`, whose job it is."""
    (served,) = job().coverage
    coverage = (
        replace(served, requires=(condition("driver-at-least", version="580"),)),
        replace(served, machine="l40"),
    )
    planned = job(outcome="planned", coverage=coverage, wheel=None)
    text = shown(build(planned, dry_run=True), monkeypatch)
    assert "driver 580 or later\n" in text
    assert "(h100)" in text
    assert "driver 580 or later" not in shown(build(job(coverage=coverage)), monkeypatch)
    assert "driver 580 or later" in shown(build(job(coverage=coverage)), monkeypatch, verbose=True)


def test_what_one_looks_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(build(job()), monkeypatch)
    for told in ("13.0", "3.12", "sm_89 sm_90", "built", "7.2 MB", "demo-1.0+cu130-cp312", "nvcc 13.0.88 from index",
                 "gcc 12.2.0", "5 calls, 4 source files", "cache: 1 of 4 hit (25 %)", "libcudadevrt.a of the toolkit",
                 "SHA256SUMS build.html build.json"):  # fmt: skip
        assert told in text, told
    assert "CUDA_HOME" not in text
    assert "a1b2c3d4" not in text


def test_everything_for_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(build(job()), monkeypatch, verbose=True)
    for told in (
        "CUDA_HOME",
        "/usr/bin/g++",
        "cmake 3.25.1",
        "h100 (9.0): native",
        "nvidia-cuda-nvcc",
        "slowest calls",
    ):
        assert told in text, told


def test_a_failure_says_what_why_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(build(FAILED), monkeypatch)
    for told in ("call 1, nvcc csrc/kernel_1.cu: exit status 1", "host compiler is too new", "install an older one",
                 "cuwheel record replay /jobs/2/record 1", "error: identifier",
                 "/out/logs/cu130-cp312.log"):  # fmt: skip
        assert told in text, told
    assert "\x1b" not in text


def test_what_the_gate_found_is_told_with_its_job_notes_only_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = build(job(), REFUSED)
    text = shown(answer, monkeypatch)
    assert "cu130-cp310: demo/libdemo.so: sm_75" in text
    assert "allow-without-effect" not in text
    assert "allow-without-effect" in shown(answer, monkeypatch, verbose=True)


def test_a_wheel_in_the_output_folder_is_told_by_its_name_and_a_refused_one_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = replace(wheel(), path="/out/demo-1.0-py3-none-linux_x86_64.whl")
    lines = [line.split() for line in shown(build(job(wheel=made), output="/out"), monkeypatch).splitlines()]
    assert ["wheel", "demo-1.0-py3-none-linux_x86_64.whl"] in lines
    lines = [line.split() for line in shown(build(job(wheel=made), output="/other"), monkeypatch).splitlines()]
    assert ["wheel", made.path] in lines


def test_a_python_that_anothers_wheel_serves_is_no_wheel_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    served = job(id="cu130-cp312", python="3.12", outcome="skipped", reason="demo.whl serves Python 3.12 too")
    assert shown(build(job(), served), monkeypatch).startswith("demo 1.0: 1 wheel in")
    assert shown(build(job(), FAILED), monkeypatch).startswith("demo 1.0: 1 of 2 wheels in")


def test_the_same_finding_of_all_jobs_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(REFUSED, id="cu134-cp310", cuda="13.4")
    text = shown(build(REFUSED, other), monkeypatch)
    assert text.count("architecture-not-planned") == 1
    assert "all: demo/libdemo.so" in text


def test_a_dry_run_tells_the_plan_and_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = job(outcome="planned", wheel=None, calls=Calls(), phases=(), seconds=0.0, listed=(), log="", record="")
    text = shown(build(planned, dry_run=True, written=(), output=""), monkeypatch)
    assert text.startswith("demo 1.0: 1 wheel would be built (--dry-run)")
    for told in ("CUDA_HOME", "/store/cuda-13.0", "MAX_JOBS", "python -m build --wheel", "h100 (9.0): native, sm_90",
                 "LD_PRELOAD and CUWHEEL_RECORD"):  # fmt: skip
        assert told in text, told
    assert "outcome" not in text
    short = build(planned, replace(planned, id="cu124-cp310", outcome="failed"), dry_run=True)
    assert shown(short, monkeypatch).startswith("demo 1.0: 1 of 2 wheels would be built")


@pytest.mark.parametrize(
    ("jobs", "succeeded"),
    [
        ((job(),), True),
        ((job(), job(outcome="resumed")), True),
        ((job(), job(outcome="skipped", wheel=wheel())), True),  # another job's wheel serves it too
        ((job(), job(outcome="skipped", wheel=None)), False),
        ((job(), FAILED), False),
        ((REFUSED,), False),
        ((), False),
    ],
)
def test_when_a_build_succeeded(jobs: tuple[object, ...], *, succeeded: bool) -> None:
    assert build(*jobs).succeeded == succeeded  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (10.2, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (125, "2 min 5 s"),
    ],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


def test_what_is_written_beside_the_wheels(tmp_path: Path) -> None:
    made = []
    for name in ("b-1.0-py3-none-linux_x86_64.whl", "a-1.0-py3-none-linux_x86_64.whl"):
        (tmp_path / name).write_bytes(name.encode())
        digest = hashlib.sha256(name.encode()).hexdigest()
        made.append(replace(wheel(), path=str(tmp_path / name), sha256=digest))
    jobs = (job(wheel=made[0]), job(wheel=made[1]), job(outcome="skipped", wheel=made[1]), FAILED, REFUSED)
    answer = write_beside_wheels(build(*jobs, written=()), tmp_path)
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums == f"{made[1].sha256}  {Path(made[1].path).name}\n{made[0].sha256}  {Path(made[0].path).name}\n"
    assert [Path(each).name for each in answer.written] == ["SHA256SUMS", "build.html", "build.json"]
    told = json.loads((tmp_path / "build.json").read_text())
    assert told["schema"] == "cuwheel.build/1"
    assert told["written"] == list(answer.written)
    assert told["jobs"][0]["calls"]["spans"][1]["file"] == EVIL
    assert not list(tmp_path.glob("*.part"))


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    answer = write_beside_wheels(build(job(), FAILED, REFUSED), tmp_path)
    assert codec.decode((tmp_path / "build.json").read_bytes(), Build) == answer


def test_checksums_of_wheels_that_are_still_there_stay(tmp_path: Path) -> None:
    (tmp_path / "old.whl").write_bytes(b"old")
    lines = [
        f"{'1' * 64}  old.whl",
        f"{'2' * 64}  gone.whl",
        f"{'3' * 64}  ../out.whl",
        "noise",
        f"{'4' * 64}  new.whl",
    ]
    (tmp_path / "SHA256SUMS").write_text("\n".join(lines))
    (tmp_path / "new.whl").write_bytes(b"new")
    write_beside_wheels(build(job(wheel=replace(wheel(), path=str(tmp_path / "new.whl"), sha256="5" * 64))), tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text() == f"{'5' * 64}  new.whl\n{'1' * 64}  old.whl\n"


def test_no_wheels_no_checksums(tmp_path: Path) -> None:
    answer = write_beside_wheels(build(FAILED), tmp_path / "new")
    assert [Path(each).name for each in answer.written] == ["build.html", "build.json"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableError):
        write_beside_wheels(build(job()), tmp_path / "file")
    (tmp_path / "out" / "build.json").mkdir(parents=True)
    with pytest.raises(UnreadableError):
        write_beside_wheels(build(job()), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.part"))


def _timeline(**changes: object) -> Timeline:
    (drawn,) = blocks(job(**changes))
    return drawn


def test_the_timeline_has_a_row_for_each_call_that_ran_beside_others() -> None:
    drawn = _timeline()
    phases, *lanes = drawn.rows
    assert [bar.text for bar in phases] == ["source", "environment", "build", "gate"]
    assert [[bar.tip.split(":")[0] for bar in lane] for lane in lanes] == [["1", "3", "4", "5"], ["2"]]
    assert [bar.kind for bar in lanes[0]] == ["nvcc", "hit", "compiler", "linker"]
    assert "at most 2 at once" in drawn.caption
    assert {kind for kind, _ in drawn.legend} == {"phase", "nvcc", "hit", "compiler", "linker", "cicc", "ptxas", "host"}


def test_bars_stay_within_the_axis_and_rows_never_overlap() -> None:
    spans = tuple(span(number, number * 0.37, 0.2 + number % 7) for number in range(200))
    drawn = _timeline(calls=Calls(total=200, spans=spans), seconds=5.0)
    for lane in drawn.rows[1:]:
        for one, other in pairwise(lane):
            assert one.began + one.seconds <= other.began
        assert lane[-1].began + lane[-1].seconds <= drawn.seconds
    assert sum(map(len, drawn.rows[1:])) == 200
    assert 2 <= len(drawn.ticks) <= 9


def test_a_call_that_never_ended_lasts_to_the_end() -> None:
    running = span(1, 4.0, 0.0, ended=None, state="started")
    (bar,) = _timeline(calls=Calls(total=1, spans=(running,))).rows[1]
    assert (bar.seconds, bar.kind) == (12.0, "nvcc")


def test_parts_of_a_bar_are_shares_of_what_nvcc_measured() -> None:
    bar = _timeline().rows[1][0]
    assert [(kind, round(share, 6)) for kind, share in bar.parts] == [("host", 0.2), ("cicc", 0.5), ("ptxas", 0.3)]


def test_a_job_of_no_time_at_all_can_be_drawn() -> None:
    nothing = span(1, 0.0, 0.0)
    assert html.page(
        document_of(build(job(seconds=0.0, phases=(), calls=Calls(total=1, spans=(nothing,)))), verbose=True)
    )


def test_calls_from_a_record() -> None:
    compiled = call(1, "-c a.cu -o a.o", phases=(
        Phase(name="cicc", file="a.cu", arch="compute_90", seconds=0.1),
        Phase(name="cicc", file="a.cu", arch="compute_90", seconds=0.2),
    ))  # fmt: skip
    trial = call(2, "CMakeCUDACompilerId.cu", cwd="/job/src/build/CMakeFiles/3.25.1/CompilerIdCUDA")
    linked = call(3, "-shared a.o -o x.so", program="/usr/bin/g++")
    again = call(4, "-c a.cu -o a.o", cache_hit=True)
    dead = call(5, "-c b.cu", ended=None, state="started", status=None)
    told = calls_of(record(dead, compiled, trial, linked, again), 2.0)
    assert (told.total, told.compiled, told.failed, told.hits, told.misses) == (5, 2, 0, 1, 0)
    assert told.seconds == 2.0
    assert [each.file for each in told.spans] == ["a.cu", "", "x.so", "a.cu", "b.cu"]
    assert (told.spans[0].began, told.spans[0].ended) == (3.0, 3.5)
    (piece,) = told.spans[0].pieces
    assert piece.seconds == pytest.approx(0.3)
    assert calls_of(None) == Calls()
    assert calls_of(record(compiled), cached=(7, 2)).hits == 7


def test_a_failure_from_a_call() -> None:
    from cuwheel.building.values import Problem

    trouble = Problem(phase="build", what="the backend failed", hint="see the log")
    plain = failure_of(trouble, output="x" * 20_000)
    assert plain.what == "the backend failed (see the log)"
    assert len(plain.output) == 8000
    bad = call(3, "-c a.cu", state="failed", status=2)
    assert failure_of(trouble, bad).what == "call 3, nvcc a.cu: exit status 2"
    killed = call(3, "-c a.cu", state="signalled", status=None, signal=9)
    assert failure_of(trouble, killed).what == "call 3, nvcc a.cu: signal 9"
    absent = call(3, "-c a.cu", state="not-started", status=None, problem="no such file")
    assert failure_of(trouble, absent).what == "call 3, nvcc a.cu: no such file"


def test_the_page_escapes_what_comes_from_files() -> None:
    page = html.page(document_of(build(job()), verbose=True))
    assert EVIL not in page
    assert "&lt;script&gt;document.title" in page
    assert "http" not in page.replace("http-equiv", "")
    assert len(SPANS) == page.count('class="span nvcc"') + 3
