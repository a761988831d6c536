from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cuwheel.errors import ToolError, ToolTimeoutError
from cuwheel.support import process, quoting


def test_output_and_status() -> None:
    done = process.run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"], timeout=600)
    assert (done.status, done.stdout, done.stderr) == (0, "out\n", "err\n")


def test_a_failure_carries_its_output() -> None:
    with pytest.raises(ToolError) as caught:
        process.run([sys.executable, "-c", "print('why'); raise SystemExit(3)"], timeout=600)
    assert "failed with status 3" in caught.value.message
    assert "| why" in caught.value.message
    assert process.run([sys.executable, "-c", "raise SystemExit(3)"], timeout=600, check=False).status == 3


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(ToolError, match="could not be started: No such file"):
        process.run(["/nowhere/nvcc"], timeout=1)


def test_a_time_out_ends_the_children_too(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    script = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"pathlib.Path({str(told)!r}).write_text(str(child.pid))\n"
        "time.sleep(3600)\n"
    )
    for seconds in (2, 60):  # on a busy machine it had not begun in that time
        with pytest.raises(ToolTimeoutError, match=f"within {seconds} s"):
            process.run([sys.executable, "-c", script], timeout=seconds)
        if told.exists():
            break
    grandchild = int(told.read_text())
    for _ in range(100):
        if not _alive(grandchild):
            return
        time.sleep(0.05)
    pytest.fail("the grandchild still runs")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for() -> None:
    script = (
        "import os, subprocess, sys\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True).pid)\n"
    )
    daemon = int(process.run([sys.executable, "-c", script], timeout=600).stdout)
    os.kill(daemon, signal.SIGKILL)  # it is still there


def test_output_without_end_is_cut() -> None:
    size = process.MAX_OUTPUT + 1_000_000
    done = process.run([sys.executable, "-c", f"print('x' * {size})"], timeout=600)
    assert len(done.stdout) == process.MAX_OUTPUT


def test_long_work_is_told_line_by_line_and_kept(tmp_path: Path) -> None:
    kept, told = tmp_path / "log", list[str]()
    script = (
        "import sys; print('one', flush=True); print('two', file=sys.stderr, flush=True); sys.stdout.write('no end')"
    )
    status = process.follow([sys.executable, "-c", script], output=kept, timeout=600, on_line=told.append)
    assert (status, told, kept.read_text()) == (0, ["one", "two", "no end"], "one\ntwo\nno end")


def test_long_work_that_hangs_is_ended_and_its_output_kept(tmp_path: Path) -> None:
    script = "import time; print('begun', flush=True); time.sleep(3600)"
    with pytest.raises(ToolTimeoutError):
        process.follow([sys.executable, "-c", script], output=tmp_path / "log", timeout=1)
    assert (tmp_path / "log").read_text() == "begun\n"


def test_what_long_work_left_running_is_ended(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)']).pid)"
    )
    assert process.follow([sys.executable, "-c", script], output=tmp_path / "log", timeout=600) == 0
    pid = int((tmp_path / "log").read_text())
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def test_a_command_is_attended(tmp_path: Path) -> None:
    script = f"import pathlib; pathlib.Path({str(tmp_path / 'here')!r}).touch(); raise SystemExit(7)"
    assert process.attend([sys.executable, "-c", script]) == 7
    assert (tmp_path / "here").exists()
    assert process.attend([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == -9


def test_an_attended_command_gets_signals_that_come_from_no_terminal(tmp_path: Path) -> None:
    script = tmp_path / "attend.py"
    child = "import signal, sys; signal.signal(2, lambda *_: sys.exit(5)); print('ready', flush=True); signal.pause()"
    script.write_text(
        "import sys\nfrom cuwheel.support import process\n"
        f"sys.exit(process.attend([sys.executable, '-c', {child!r}]))\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, start_new_session=True) as running:
        assert running.stdout
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(600) == 5


def test_an_attended_text_is_run_by_a_shell(tmp_path: Path) -> None:
    text = tmp_path / "build"
    text.write_text('[ "$1" = "a b" ] && exit 4\n')
    text.chmod(0o755)
    assert process.attend([text, "a b"]) == 4
    text.chmod(0o644)
    with pytest.raises(ToolError, match="Permission denied"):
        process.attend([text])


def test_the_reader_of_an_ended_program_takes_nothing_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may be about to read when the pipe is closed, and the next pipe gets the same number."""
    read, about_to, go_on = os.read, threading.Event(), threading.Event()

    def held_back(descriptor: int, size: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            about_to.set()
            assert go_on.wait(600)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", held_back)
    with process.conversing([sys.executable, "-c", "input()"]) as program:
        number = program._child.stdout.fileno()  # type: ignore[union-attr]  # it has one
        assert about_to.wait(600)
    reading, writing = os.pipe()
    os.dup2(reading, number)
    os.write(writing, b"next")
    go_on.set()
    assert program.receive(30) == b""
    os.close(writing)
    assert read(reading, 10) == b"next"
    os.close(reading)
    if number != reading:
        os.close(number)


@pytest.mark.parametrize(
    ("name", "value", "now", "then"),
    [
        ("PATH", "/c/bin", "/a:/b", "/c/bin:/a:/b"),
        ("LIBRARY_PATH", "/c", "", "/c"),
        ("LIBRARY_PATH", "/c", "/a", "/c:/a"),
        ("NOTE", 'a "b" $HOME `x` \\', None, 'a "b" $HOME `x` \\'),
        ("CUDA_HOME", "~/cuda", None, "/home/me/cuda"),
    ],
)
def test_variables_as_sh_sets_them(name: str, value: str, now: str | None, then: str) -> None:
    line = quoting.set_variables({name: value}, "posix", prepend=(name,) if now is not None else ())
    before = {"HOME": "/home/me"} | ({name: now} if now else {})
    done = subprocess.run(
        ["/bin/sh", "-c", f"{line}; printf '%s' \"${name}\""], env=before, capture_output=True, text=True, check=True
    )
    assert done.stdout == then
