"""What a tool prints, passed on and kept; and its end, passed on too."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from resource import struct_rusage

    from cuwheel.recording.shim.call import Call

MAX_KEPT = 16 << 20
HIGH = 100  # our own descriptors stay away from those that callers know by their numbers
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Stream:
    """What the tool writes to, passed on and kept.

    Never straight into the record: on a full disk the tool would fail, where the null device takes all.
    """

    def __init__(self, target: int, call: Call, ending: str) -> None:
        self.target, self.source, self.stored = target, -1, 0
        self.name = f"output/{call.id}.{ending}"
        self.path = f"{call.session.record}/{self.name}"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self.kept = high(os.open(self.path, flags, 0o644))
        self.heard = not goes_nowhere(target)
        source, given = os.pipe()
        self.source, self.given = high(source), high(given)

    def take(self) -> None:
        piece = os.read(self.source, 1 << 16)
        if not piece:
            self._leave()
            return
        with contextlib.suppress(OSError):
            self.stored += os.write(self.kept, piece[: MAX_KEPT - self.stored])
        while piece and self.heard:
            try:
                piece = piece[os.write(self.target, piece) :]
            except BlockingIOError:
                select.select([], [self.target], [])
            except OSError:  # the reader has gone: the tool should notice it too
                self._leave()
                return

    def _leave(self) -> None:
        os.close(self.source)
        self.source = -1

    def leave_reader(self) -> None:
        """What the tool left running may write to the null device for ever: somebody must go on reading."""
        if self.heard or self.source < 0 or os.fork():
            return
        os.setsid()
        os.dup2(self.source, 0)
        os.closerange(1, 1024)
        while os.read(0, 1 << 16):
            pass
        os._exit(0)

    def finish(self) -> None:
        size = os.fstat(self.kept).st_size
        if not size:
            os.unlink(self.path)  # noqa: PTH108
        elif size > MAX_KEPT:
            os.ftruncate(self.kept, MAX_KEPT)


def high(file: int) -> int:
    moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(file)
    return moved


def goes_nowhere(file: int) -> bool:
    try:
        found = os.fstat(file)
    except OSError:
        return True
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3)


def one_place() -> bool:
    try:
        out, err = os.fstat(1), os.fstat(2)
    except OSError:
        return False
    return not goes_nowhere(1) and (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def start_tool(call: Call, out: Stream, err: Stream, report: int) -> NoReturn:
    try:
        os.dup2(out.given, 1)
        os.dup2(err.given, 2)
        for number in (*FORWARDED, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ):
            if signal.getsignal(number) is not signal.SIG_IGN or number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
        run = os.execve if call.start == call.program else os.execvpe
        run(call.start, call.command, call.environ | call.added)
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    os._exit(127)


class _Attended:
    """The tool while it runs: signals go to it, its output comes from it."""

    def __init__(self, call: Call, out: Stream, err: Stream) -> None:
        self._report, sent = (high(end) for end in os.pipe())
        self._woken, wake = (high(end) for end in os.pipe())
        self._child = 0
        self._early: list[int] = []
        self._usage: struct_rusage | None = None
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass_on)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._child = os.fork()
        if self._child == 0:
            signal.set_wakeup_fd(-1)
            start_tool(call, out, err, sent)
        for early in self._early:
            self._pass_on(early, None)
        os.close(sent)
        self._streams = {each.source: each for each in (out, err) if each.source >= 0}
        for each in self._streams.values():
            os.close(each.given)

    def _pass_on(self, number: int, _frame: object) -> None:
        if not self._child:
            self._early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)

    def until_end(self) -> tuple[int, int, int]:
        """Its status as wait gives it, why it could not start (0: it did), and the memory that it took."""
        status: int | None = None
        while status is None:
            ready, _, _ = select.select([self._woken, *self._streams], [], [])
            self._take(ready)
            if self._woken in ready:
                os.read(self._woken, 512)
                status = self._status()
        while ready := select.select(list(self._streams), [], [], 0)[0]:
            self._take(ready)
        for each in self._streams.values():
            each.leave_reader()
        return status, int(os.read(self._report, 16) or 0), self._usage.ru_maxrss * 1024 if self._usage else 0

    def _take(self, ready: list[int]) -> None:
        for source in ready:
            if source in self._streams:
                self._streams[source].take()
        self._streams = {each.source: each for each in self._streams.values() if each.source >= 0}

    def _status(self) -> int | None:
        pid, status, self._usage = os.wait4(self._child, os.WNOHANG)
        return status if pid == self._child else None


def run_recorded(call: Call) -> NoReturn:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a limit on file sizes must not kill the tool because of the record
    merged = one_place()
    try:
        out = Stream(1, call, "out")
        err = out if merged else Stream(2, call, "err")
    except OSError:  # the record cannot be written: the build goes on without it
        os.execvpe(call.start, call.command, call.environ)  # noqa: S606 - no shell, no surprise
    call.tell_start(out.name, "" if merged else err.name)
    status, problem, memory = _Attended(call, out, err).until_end()
    for each in {id(out): out, id(err): err}.values():
        each.finish()
    finish(call, status, problem, memory)


def finish(call: Call, status: int, problem: int, memory: int) -> NoReturn:
    signalled = os.WIFSIGNALED(status)
    key = "errno" if problem else "signal" if signalled else "status"
    value = problem or (os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status))
    event = {"event": "end", "id": call.id, "ended": call.session.now(), key: value, "memory": memory}
    call.session.append(event, lasting=False)
    if problem:
        sys.stderr.write(f"{call.start}: {os.strerror(problem)}\n")
        sys.stderr.flush()
        os._exit(127 if problem == errno.ENOENT else 126)
    if signalled:
        if value != signal.SIGKILL:
            signal.signal(value, signal.SIG_DFL)
        os.kill(os.getpid(), value)
    os._exit(value)
