"""One command run to its end, whatever that is: it may crash, hang, eat memory, print without end, leave others behind.

Memory is limited by looking: the sum over the check's processes, many times a second. A limit of the kernel on address
space would refuse CUDA, which reserves far more than it uses; one on data, twice what was allowed, stands behind the
looking for checks that use no GPU. Core files are never written.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from . import launch, pipes, processes
from .capture import Capture

_RESOURCE: Any = importlib.import_module("resource") if os.name == "posix" else None
_LOOK_S = 0.1
_GRACE_S = 1.0  # for what a check started to end on its own
_LAST_WAIT_S = 2.0
_MOST_PROCESSES = 1000
_GUARD = 2  # how many times the memory allowed a process may ask for before the kernel refuses it


class Limits(NamedTuple):
    seconds: float
    memory: int
    guarded: bool = True  # by the kernel too
    cut: bool = False  # off the network


class End(NamedTuple):
    """How it ended. `status`: None if it was ended by us before it said one; negative for a signal."""

    status: Optional[int]
    stopped: str  # "", "timeout", "memory", "processes"
    seconds: float
    memory: int
    leftovers: tuple[str, ...]
    error: str = ""  # it could not be started


def run(
    words: Sequence[str], environ: Mapping[str, str], folder: str, limits: Limits, capture: Capture, mark: str
) -> End:
    """Run in a session of its own without a standard input. Nothing that it started is left."""
    began = time.monotonic()
    try:
        child = launch.start(words, processes.marked(environ, mark), folder, cut=limits.cut)
    except (OSError, ValueError) as error:
        return End(None, "", time.monotonic() - began, 0, (), error=_why(error))
    watch = _Watch(child, limits, began)
    try:
        _limit(child.pid, limits)
        with processes.ended_with_us(child.pid, mark), contextlib.closing(pipes.of(child, capture)) as streams:
            stopped = _attend(child, streams, watch)
            remaining = () if stopped else _still_running(child.pid, mark, streams)
    finally:
        processes.end(child.pid, mark)
        # A process stuck in the kernel (a hung GPU driver) cannot be killed: leave it rather than hang too.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WAIT_S)
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    status = None if stopped else child.returncode
    return End(status, stopped, time.monotonic() - began, watch.most, remaining)


def _attend(child: subprocess.Popen[bytes], streams: pipes.Pipes, watch: _Watch) -> str:
    """Take what it prints until it ends or must be ended; why it must."""
    while child.poll() is None:
        problem = watch.look()
        if problem:
            return problem
        if streams.are_open:
            streams.take(_LOOK_S)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_S)
    streams.drain(_GRACE_S)
    return ""


def _still_running(session: int, mark: str, streams: pipes.Pipes) -> tuple[str, ...]:
    """What still runs a moment after the check itself has ended."""
    until = time.monotonic() + _GRACE_S
    while True:
        remaining = processes.of_check(session, mark)
        if not remaining or time.monotonic() >= until:
            break
        time.sleep(_LOOK_S / 2)
        streams.drain(0)
    return tuple(f"{each.name} ({each.pid})" for each in remaining)


class _Watch:
    """Time and memory, looked at so often that looking costs little."""

    def __init__(self, child: subprocess.Popen[bytes], limits: Limits, began: float) -> None:
        self._child, self._limits = child, limits
        self._end, self._next = began + limits.seconds, began
        self.most = 0

    def look(self) -> str:
        now = time.monotonic()
        if now >= self._end:
            return "timeout"
        if now < self._next:
            return ""
        self._next = now + _LOOK_S
        found = processes.of_session(self._child.pid)
        self.most = max(self.most, sum(each.memory for each in found))
        if self.most > self._limits.memory:
            return "memory"
        return "processes" if len(found) > _MOST_PROCESSES else ""


def _limit(pid: int, limits: Limits) -> None:
    """From outside: code between fork and exec is not safe where the caller has threads."""
    if not hasattr(_RESOURCE, "prlimit"):
        return
    wanted = {_RESOURCE.RLIMIT_CORE: 0}
    if limits.guarded:
        wanted[_RESOURCE.RLIMIT_DATA] = limits.memory * _GUARD
    for kind, most in wanted.items():
        with contextlib.suppress(OSError, ValueError):
            _RESOURCE.prlimit(pid, kind, (most, most))


def _why(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
