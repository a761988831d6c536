"""What a recorded command prints: passed on as it is, and its end kept: a build system's last words count too."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.building.recording import reader
from tests.fixtures.command import Told, call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CUWHEEL = (sys.executable, "-m", "cuwheel")


def record(folder: Path, *command: str, **more: str) -> tuple[Told, dict[str, object]]:
    environ = {**os.environ, "LANG": "C.UTF-8", **more}
    done = call("record", "-o", "record", "--", *command, env=environ, cwd=folder)
    return done, json.loads((folder / "record" / "report.json").read_text())


CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(x LANGUAGES C)
include(CheckCSourceCompiles)
check_c_source_compiles("int main(void) { nope; }" HAVE_NOPE)
message(FATAL_ERROR "this project wants CUDA of the year 2040")
"""
NINJA = "rule no\n  command = echo the reason; false\nbuild out: no\n"


@pytest.mark.parametrize(
    ("files", "command", "what"),
    [
        pytest.param(
            {"CMakeLists.txt": CMAKE}, "cmake -S . -B b", "this project wants CUDA of the year 2040", id="cmake"
        ),
        pytest.param(
            {"Makefile": "all:\n\t@echo the reason; false\n"}, "make", "make: *** [Makefile:2: all]", id="make"
        ),
        pytest.param({"build.ninja": NINJA}, "ninja", "FAILED: ", id="ninja"),
        pytest.param({"build.ninja": "build out: nothing\n"}, "ninja", "ninja: error: ", id="ninja-itself"),
        pytest.param(
            {"setup.py": "raise RuntimeError('no kernels are made here')\n"},
            f"{sys.executable} setup.py build",
            "RuntimeError: no kernels are made here",
            id="setup.py",
        ),
        pytest.param(
            {"configure": "#!/bin/sh\necho 'configure: error: no cublas' >&2; exit 1\n"},
            "./configure",
            "configure: error: no cublas",
            id="configure",
        ),
    ],
)
def test_who_gave_up_says_why(tmp_path: Path, files: dict[str, str], command: str, what: str) -> None:
    """A trial of a compiler that fails beside it made nothing stop."""
    program = command.split(maxsplit=1)[0]
    if not shutil.which(program) and not program.startswith("."):
        pytest.skip(f"{program} is not installed")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done, report = record(tmp_path, *command.split())
    assert done.status == report["exit_status"] != 0
    assert report["failure"] is None
    words = report["last_words"]
    assert isinstance(words, dict)
    assert what in words["what"]
    assert what in done.stderr.partition("What made it stop")[2]


QUIET = """\
cmake_minimum_required(VERSION 3.20)
project(x NONE)
execute_process(COMMAND cc -c ${CMAKE_SOURCE_DIR}/bad.c -o bad.o RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
%s
if(failed)
  message(FATAL_ERROR "the kernels could not be made")
endif()
"""


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_a_call_whose_output_cmake_threw_away_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f(void) { return nope; }\n")
    (tmp_path / "CMakeLists.txt").write_text(QUIET % "")
    done, report = record(tmp_path, "cmake", "-S", ".", "-B", "b")
    failed, words = report["failure"], report["last_words"]
    assert isinstance(failed, dict)
    assert isinstance(words, dict)
    assert failed["files"] == [str(tmp_path / "bad.c")]
    assert "nope" in failed["output"]
    assert "the kernels could not be made" in words["what"]
    told = done.stderr.partition("Call ")[2]
    assert "bad.c" in told
    assert "the kernels could not be made" in told


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_a_call_after_which_cmake_went_on_is_not(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f(void) { return nope; }\n")
    (tmp_path / "good.c").write_text("int f(void) { return 0; }\n")
    more = "execute_process(COMMAND cc -c ${CMAKE_SOURCE_DIR}/good.c -o good.o)"
    (tmp_path / "CMakeLists.txt").write_text(QUIET % more)
    _, report = record(tmp_path, "cmake", "-S", ".", "-B", "b")
    assert report["failure"] is None
    assert isinstance(report["last_words"], dict)


def test_the_words_of_a_call_that_failed_are_not_told_twice(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("bad.o:\n\tcc -c bad.c\n")
    (tmp_path / "bad.c").write_text("int f(void) { return nope; }\n")
    _, report = record(tmp_path, "make")
    assert isinstance(report["failure"], dict)
    assert report["failure"]["files"] == ["bad.c"]
    assert report["last_words"] is None


def test_words_that_nobody_knows_are_shown(tmp_path: Path) -> None:
    done, report = record(tmp_path, "sh", "-c", "echo all is lost; exit 3")
    assert report["last_words"] == {"what": "", "lines": ["all is lost"], "causes": []}
    assert "The last that it printed\n  all is lost" in done.stderr


def test_a_command_that_succeeds_has_none(tmp_path: Path) -> None:
    _, report = record(tmp_path, "sh", "-c", "echo 'RuntimeError: not really'")
    assert report["last_words"] is None


def test_explain_takes_them_from_the_record(tmp_path: Path) -> None:
    record(tmp_path, "sh", "-c", "echo 'RuntimeError: FLASH needs CUDA 11.7 and above' >&2; exit 1")
    assert [cause.id for cause in api.explain(tmp_path / "record").causes if not cause.when] == ["toolkit-too-old"]


def test_the_end_is_kept_whole_lines_and_bounded(tmp_path: Path) -> None:
    script = "import sys; print(*(f'line {n} of many' for n in range(150000)), sep='\\n', flush=True); sys.exit('last')"
    with (tmp_path / "all").open("wb") as file, _streams_to(file.fileno()):
        answer = api.record([sys.executable, "-c", script], output=tmp_path / "record", cwd=tmp_path)
    assert answer.exit_status == 1
    printed = (tmp_path / "all").read_text()
    assert printed.startswith("line 0 of many\n")
    assert printed.endswith("line 149999 of many\nlast\n")
    kept = (tmp_path / "record" / "output" / "command.txt").read_text()
    assert printed.endswith(kept)
    assert kept.startswith("line ")
    assert 1 << 17 < len(kept) <= 1 << 19


@contextlib.contextmanager
def _streams_to(file: int) -> Iterator[None]:
    """Both streams of this process lead there for a while: a command inherits them."""
    before = {each: os.dup(each) for each in (1, 2)}
    for each in before:
        os.dup2(file, each)
    try:
        yield
    finally:
        for each, old in before.items():
            os.dup2(old, each)
            os.close(old)


def test_secrets_in_it_are_masked(tmp_path: Path) -> None:
    environ = {**os.environ, "MY_TOKEN": "plain-word-99"}
    api.record(["sh", "-c", "echo $MY_TOKEN; exit 1"], output=tmp_path / "record", environ=environ, cwd=tmp_path)
    assert "plain-word-99" not in (tmp_path / "record" / "output" / "command.txt").read_text()
    assert "plain-word-99" not in (tmp_path / "record" / "report.json").read_text()


def test_a_command_that_the_system_does_not_run(tmp_path: Path) -> None:
    script = tmp_path / "broken"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert api.record([str(script)], output=tmp_path / "record").exit_status == 127


def test_the_folder_of_a_command_with_a_path(tmp_path: Path) -> None:
    (tmp_path / "build.sh").write_text("echo here: $PWD; exit 5\n")  # without a first line: shells run it themselves
    (tmp_path / "build.sh").chmod(0o755)
    answer = api.record(["./build.sh"], output=tmp_path / "record", cwd=tmp_path)
    assert answer.exit_status == 5
    assert answer.last_words
    assert answer.last_words.lines == (f"here: {tmp_path}",)


def test_what_it_leaves_behind_goes_on_printing(tmp_path: Path) -> None:
    script = "(sleep 1; echo later; echo more >&2) & echo now; exit 4"
    words = [*CUWHEEL, "record", "-q", "-o", "record", "--", "sh", "-c", script]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.wait(600) == 4
        assert child.stdout
        assert "later\nmore\n" in child.stdout.read()  # it ends when the last writer does, as without us


def test_a_killed_cuwheel_leaves_the_build_alone(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"echo begun; sleep 1; echo on; echo on; echo done > '{mark}'"
    words = [*CUWHEEL, "record", "-o", "record", "--", "sh", "-c", script]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        assert child.stdout.readline() == b"begun\n"
        child.kill()
        assert child.stdout.read() == b"on\non\n"
    assert mark.read_text() == "done\n"


class Terminal:
    """Somebody's own, with cuwheel in its foreground."""

    def __init__(self, folder: Path, script: str) -> None:
        self.child, self.master = pty.fork()
        if self.child == 0:
            os.chdir(folder)
            words = [*CUWHEEL, "record", "-q", "-o", "record", "--", sys.executable, "-c", script]
            os.execv(words[0], words)  # noqa: S606 - no shell, no surprise
        self.heard = b""

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + 600
        while text not in self.heard:
            assert time.monotonic() < deadline, self.heard
            self.heard += os.read(self.master, 4096)

    def end(self) -> int:
        with contextlib.suppress(OSError):
            while piece := os.read(self.master, 4096):
                self.heard += piece
        status = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        os.close(self.master)
        return status


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[[str], Terminal]:
    return lambda script: Terminal(tmp_path, script)


def test_a_terminal_stays_one(tmp_path: Path, terminal: Callable[[str], Terminal]) -> None:
    script = (
        "import os; print(*map(os.isatty, range(3)), os.get_terminal_size(1).columns); input(); print('typed'); 1/0"
    )
    at = terminal(script)
    fcntl.ioctl(at.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 77, 0, 0))
    at.until(b"True True True ")
    os.write(at.master, b"a line\n")
    assert at.end() == 1
    assert b"typed\r\n" in at.heard
    assert b"\r\r\n" not in at.heard
    assert reader.read_command_output(reader.read_record(tmp_path / "record")).endswith(
        "ZeroDivisionError: division by zero\n"
    )


def test_ctrl_c_reaches_the_command_once(terminal: Callable[[str], Terminal]) -> None:
    script = (
        "import signal, time; n = []; signal.signal(signal.SIGINT, lambda *_: n.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 600\n"
        "while not n and time.monotonic() < end: time.sleep(0.05)\n"
        "time.sleep(0.3); print('times', len(n)); raise SystemExit(7)"
    )
    at = terminal(script)
    at.until(b"ready")
    os.write(at.master, b"\x03")
    assert at.end() == 7
    assert b"times 1\r\n" in at.heard


def test_a_size_that_changes_is_seen(terminal: Callable[[str], Terminal]) -> None:
    script = (
        "import os, time; print('ready', flush=True); end = time.monotonic() + 600\n"
        "while os.get_terminal_size(1).columns != 99 and time.monotonic() < end: time.sleep(0.05)\n"
        "print('now', os.get_terminal_size(2).columns)"
    )
    at = terminal(script)
    at.until(b"ready")
    fcntl.ioctl(at.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 99, 0, 0))
    assert at.end() == 0
    assert b"now 99\r\n" in at.heard


def test_what_it_sets_of_its_output_is_set_of_the_terminal(terminal: Callable[[str], Terminal]) -> None:
    """As programs do that draw on all of it (ccmake): they turn the echo off by their output."""
    script = (
        "import termios; modes = termios.tcgetattr(1); old = list(modes); modes[3] &= ~termios.ECHO\n"
        "termios.tcsetattr(1, termios.TCSADRAIN, modes); print('quiet', flush=True); input()\n"
        "termios.tcsetattr(1, termios.TCSADRAIN, old); print('loud', flush=True); input()"
    )
    at = terminal(script)
    at.until(b"quiet")
    time.sleep(0.2)
    os.write(at.master, b"secret\n")
    at.until(b"loud")
    time.sleep(0.2)
    os.write(at.master, b"open\n")
    assert at.end() == 0
    assert b"secret" not in at.heard
    assert b"open" in at.heard


def test_a_signal_that_ends_it(tmp_path: Path) -> None:
    words = [*CUWHEEL, "record", "-q", "-o", "record", "--", "sh", "-c", "echo ready; exec sleep 3600"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(600) == 128 + signal.SIGTERM


def test_words_that_nvcc_takes_from_variables_are_shown(tmp_path: Path) -> None:
    """The same command typed by hand works, and nothing in it says why it did not there."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho \"nvcc fatal   : Unknown option '$NVCC_APPEND_FLAGS'\" >&2\nexit 1\n")
    nvcc.chmod(0o755)
    (tmp_path / "build.sh").write_text(f"export NVCC_APPEND_FLAGS=--fancy\n'{nvcc}' -c a.cu 2>/dev/null\n")
    told, report = record(tmp_path, "sh", "build.sh")
    failure = report["failure"]
    assert isinstance(failure, dict)
    assert failure["flags"] == ["NVCC_APPEND_FLAGS=--fancy"]
    assert "one of them is set" in failure["causes"][0]["fix"][0]
    assert "NVCC_APPEND_FLAGS=--fancy" in told.stderr
