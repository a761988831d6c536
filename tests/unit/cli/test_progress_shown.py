"""What people see of long work: on a terminal, and in a log."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from cuwheel.building.job_run import _Phases, _Work
from cuwheel.building.recording.session import Progress
from cuwheel.cli import streams


def test_in_a_log_a_line_once_a_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with streams.in_lines("wheel for 13.0", None) as bar:
        for now in range(130):
            bar.show(f"at {now} s")
    assert capsys.readouterr().err.splitlines() == ["wheel for 13.0 at 60 s", "wheel for 13.0 at 120 s"]


@pytest.mark.parametrize(
    ("step", "running", "shown"),
    [
        ("", (), "1 min 40 s: build 3 compiler calls"),
        ("4 of 9 files", (), "1 min 40 s: build 4 of 9 files"),
        ("4 of 9 files", (("nvcc ops.cu", 75.0),), "1 min 40 s: build 4 of 9 files, nvcc ops.cu for 1 min 15 s"),
        (
            "",
            (("nvcc a.cu", 12.0), ("nvcc b.cu", 3.0), ("g++ c.cpp", 1.0)),
            "1 min 40 s: build 3 compiler calls, nvcc a.cu for 12 s, nvcc b.cu for 3.0 s, and 1 more",
        ),
    ],
)
def test_a_build_says_what_is_being_compiled_and_for_how_long(
    step: str, running: tuple[tuple[str, float], ...], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    work = _Work.__new__(_Work)
    work.phases, work.step = _Phases(100.0), step
    work.phases.name = "build"
    work.session = SimpleNamespace(progress=lambda: Progress(calls_ended=3, running=running))  # type: ignore[assignment]
    assert work._now() == shown


def test_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    work = _Work.__new__(_Work)
    work.phases, work.step, work.session = _Phases(5.0), "", None
    work.phases.name = "environment"
    assert work._now() == "5.0 s: environment"


def test_messages_on_a_terminal_are_wrapped_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    address = "https://wheels.example.com/simple/a-long-name/"
    streams.say_on_terminal("warning", f"{address}: not reachable, so only the other places were asked")
    streams.say_on_terminal("info", "downloading foo 1.0")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "downloading foo 1.0"
    assert lines[0] == "warning:"
    assert lines[1] == f"  {address}:"
    assert all(len(line) < 40 for line in lines if address not in line)
    monkeypatch.delenv("NO_COLOR")
    streams.say_on_terminal("warning", "yes")
    assert capsys.readouterr().err == "\x1b[33mwarning\x1b[0m: yes\n"


def test_work_without_steps_shows_its_name_and_messages_have_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(streams, "_REFRESH_S", 0.01)
    clear = "\r\x1b[K"
    shown = ""
    with streams.on_terminal("asking your index for torch", None):
        ends = time.monotonic() + 30
        while not shown and time.monotonic() < ends:  # drawn by a thread of its own
            shown = capsys.readouterr().err
        streams.say_on_terminal("info", "downloading foo 1.0")
    assert shown == f"{clear}asking your index for torch"
    assert capsys.readouterr().err == f"{clear}downloading foo 1.0\n{clear}"
    monkeypatch.setattr(streams, "_PATIENCE_S", 60.0)
    with streams.on_terminal("quick", None):
        pass
    streams.say_on_terminal("info", "done")
    assert capsys.readouterr().err == "done\n"


def test_a_long_name_leaves_room_for_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.0)
    monkeypatch.setenv("COLUMNS", "80")
    with streams.on_terminal("torch-2.12.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl", 100) as bar:
        bar.advance(50)
    (line, _) = capsys.readouterr().err.removeprefix("\r\x1b[K").split("\r\x1b[K")
    assert line.startswith("torch-2.12")
    assert line.endswith(" [############............]  50 %")
    assert len(line) < 80
