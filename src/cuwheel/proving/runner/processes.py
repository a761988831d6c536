"""The processes of a check: how much memory they hold, which are left, and their end.

A check starts in a session of its own. What leaves the session still carries the mark in its environment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

MARK = "CUWHEEL_CHECK"
GROUPS = importlib.import_module(f"{__package__.partition('.')[0]}.support.process_groups")  # of cuwheel, or of the kit
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MOST_ENVIRON = 1 << 20
# Waits beside us. A byte: the check has ended in order. None: we were killed, and what the check started is ended
# here. The system itself ends only the check, not what that started.
_KEEPER = """\
import os, sys, time
session, mark = int(sys.argv[1]), sys.argv[2].encode()
if sys.stdin.buffer.read(1):
    os._exit(0)

def marked():
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open("/proc/" + name + "/environ", "rb") as file:
                if int(name) != os.getpid() and mark in file.read(1 << 20):
                    yield int(name)
        except OSError:
            pass

for _ in range(20):
    try:
        os.killpg(session, 9)
    except OSError:
        pass
    found = list(marked())
    for pid in found:
        try:
            os.kill(pid, 9)
        except OSError:
            pass
    if not found:
        break
    time.sleep(0.05)
"""
_ROUNDS = 20  # a process that forks while it is ended is met again
_STATE, _SESSION, _RSS = 0, 3, 21  # of /proc/PID/stat, counted behind the name


class Process(NamedTuple):
    pid: int
    name: str
    memory: int


def of_session(session: int) -> list[Process]:
    """Those alive in a session, or in a job of Windows. Empty where there is no /proc to ask."""
    if sys.platform == "win32":
        return [Process(*each) for each in GROUPS.members(session)]
    return [process for process, its_session in _alive() if its_session == session]


def of_check(session: int, mark: str) -> list[Process]:
    """Those alive in a session, or marked as the check's: a daemon has a session of its own."""
    if sys.platform == "win32":
        return of_session(session)  # nothing leaves its job
    wanted = mark.encode()
    found = []
    for process, its_session in _alive():
        if its_session == session or (process.pid != os.getpid() and wanted in _environ(process.pid)):
            found.append(process)
    return found


def end(session: int, mark: str) -> None:
    """End all that a check left; `session`: below zero for none."""
    if sys.platform == "win32":
        GROUPS.end(session)
        GROUPS.forget(session)
        return
    if session > 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    remaining = of_check(session, mark)
    for _ in range(_ROUNDS):
        if not remaining:
            break
        for process in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.01)
        remaining = of_check(session, mark)


@contextlib.contextmanager
def ended_with_us(session: int, mark: str) -> Iterator[None]:
    """What a check started ends when we are killed, too. Windows does that by itself: see `started` of its job."""
    if sys.platform == "win32":
        yield
        return
    words = [sys.executable, "-I", "-S", "-c", _KEEPER, str(session), mark]
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    null = subprocess.DEVNULL
    keeper = subprocess.Popen(
        words, env=environ, cwd="/", stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # somebody ended it
            keeper.communicate(b".")


def end_marked(mark: str) -> None:
    """End what a run that was killed left behind: all that carries its mark. On Windows the system has done it."""
    end(-1, mark)


def marked(environ: Mapping[str, str], mark: str) -> dict[str, str]:
    """With the marks that were there: a check may run checks of its own."""
    return {**environ, MARK: f"{environ.get(MARK, '')} {mark}".strip()}


def _alive() -> Iterator[tuple[Process, int]]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                yield from _one(int(name))


def _one(pid: int) -> Iterator[tuple[Process, int]]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        raw = file.read()
    front, _, back = raw.rpartition(b")")
    fields = back.split()
    if fields[_STATE] not in (b"Z", b"X"):
        name = front.partition(b"(")[2].decode("utf-8", "replace")
        yield Process(pid, name, int(fields[_RSS]) * _PAGE), int(fields[_SESSION])


def _environ(pid: int) -> bytes:
    """Of a process of ours; others' may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(_MOST_ENVIRON)
    except OSError:
        return b""
