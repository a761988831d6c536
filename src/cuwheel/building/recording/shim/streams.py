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
    from collections.abc import Callable
    from resource import struct_rusage

    from cuwheel.building.recording.shim.call import Call

MAX_KEPT = 16 << 20
MAX_TAIL = 1 << 19  # of what the recorded command itself printed: its end
COMMAND_OUTPUT = "output/command.txt"
HIGH = 100  # our own descriptors stay away from those that callers know by their numbers
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Stream:
    """What the tool writes to, passed on and kept. `tail`: of the command itself, whose end is kept.

    Never straight into the record: on a full disk the tool would fail, where the null device takes all.
    """

    def __init__(self, target: int, record: str, name: str, *, tail: bool = False) -> None:
        self.target, self.source, self.stored, self.tail = target, -1, 0, tail
        self.name = name
        self.path = f"{record}/{self.name}"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self.kept = high(os.open(self.path, flags, 0o644))
        self.has_reader = not goes_nowhere(target)
        source, given = os.pipe()
        self.source, self.given = high(source), high(given)

    def take(self) -> None:
        piece = os.read(self.source, 1 << 16)
        if not piece:
            self._leave()
            return
        with contextlib.suppress(OSError):
            if self.tail:
                self._keep_tail(piece)
            else:
                self.stored += os.write(self.kept, piece[: MAX_KEPT - self.stored])
        while piece and self.has_reader:
            try:
                piece = piece[os.write(self.target, piece) :]
            except BlockingIOError:
                select.select([], [self.target], [])
            except OSError:  # the reader has gone: the tool should notice it too
                self._leave()
                return

    def _keep_tail(self, piece: bytes) -> None:
        """Both streams of the command are kept in one file: its length is asked, and not counted."""
        size = os.fstat(self.kept).st_size
        if size + len(piece) > MAX_TAIL:
            last = os.pread(self.kept, MAX_TAIL // 2, size - MAX_TAIL // 2)
            os.ftruncate(self.kept, 0)
            os.write(self.kept, last.partition(b"\n")[2])  # a secret that is cut is not known any more
        os.write(self.kept, piece)

    def _leave(self) -> None:
        os.close(self.source)
        self.source = -1

    def leave_reader(self) -> None:
        """What the tool left running may write for ever, to the null device or to what the command was started with.

        Somebody must go on reading, and passing on.
        """
        if (self.has_reader and not self.tail) or self.source < 0 or os.fork():
            return
        with contextlib.suppress(OSError):
            os.setsid()
            for file in set(range(1024)) - {self.source, self.target}:
                with contextlib.suppress(OSError):
                    os.close(file)
            self.kept = -1
            while self.source >= 0:
                self.take()
        os._exit(0)

    def finish(self) -> None:
        size = os.fstat(self.kept).st_size
        if not size:
            with contextlib.suppress(FileNotFoundError):  # both streams may have had one file
                os.unlink(self.path)  # noqa: PTH108
        elif size > MAX_KEPT and not self.tail:
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


def start_tool(execute: Callable[[], object], out: Stream, err: Stream, report: int) -> NoReturn:
    try:
        os.dup2(out.given, 1)
        os.dup2(err.given, 2)
        for number in (*FORWARDED, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ):
            if signal.getsignal(number) is not signal.SIG_IGN or number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
        execute()
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    os._exit(127)


class _Attended:
    """The tool while it runs: signals go to it, its output comes from it."""

    def __init__(self, execute: Callable[[], object], out: Stream, err: Stream) -> None:
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
            start_tool(execute, out, err, sent)
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
        out = Stream(1, call.session.record, f"output/{call.id}.out")
        err = out if merged else Stream(2, call.session.record, f"output/{call.id}.err")
    except OSError:  # the record cannot be written: the build goes on without it
        os.execvpe(call.start, call.command, call.environ)  # noqa: S606 - no shell, no surprise
    call.write_start(out.name, "" if merged else err.name)

    def execute() -> None:
        run = os.execve if call.start == call.program else os.execvpe
        run(call.start, call.command, call.environ | call.added)

    status, problem, memory = _Attended(execute, out, err).until_end()
    for each in {id(out): out, id(err): err}.values():
        each.finish()
    write_end(call, status, problem, memory)
    end_like(call.start, status, problem)


def run_command(record: str | None, words: list[str]) -> NoReturn:
    """The recorded command itself, the end of whose output is kept. On a terminal it keeps that, and nothing is."""

    def execute() -> None:
        try:
            os.execvp(words[0], words)  # noqa: S606 - no shell, no surprise
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execv("/bin/sh", ["sh", *words])  # noqa: S606 - a text that names no interpreter: shells run it themselves

    streams = () if record is None or any(map(os.isatty, range(3))) else _command_streams(record)
    status, problem = 0, 0
    if streams:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        status, problem, _ = _Attended(execute, streams[0], streams[-1]).until_end()
        for each in streams:
            each.finish()
    else:
        try:
            execute()
        except OSError as error:
            problem = error.errno or errno.EIO
    end_like(words[0], status, problem)


def _command_streams(record: str) -> tuple[Stream, ...]:
    """None where the record cannot be written: the build goes on without it."""
    with contextlib.suppress(OSError):
        return tuple(Stream(each, record, COMMAND_OUTPUT, tail=True) for each in ((1,) if one_place() else (1, 2)))
    return ()


def write_end(call: Call, status: int, problem: int, memory: int) -> None:
    signalled = os.WIFSIGNALED(status)
    key = "errno" if problem else "signal" if signalled else "status"
    value = problem or (os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status))
    event = {"event": "end", "id": call.id, "ended": call.session.now(), key: value, "memory": memory}
    call.session.append(event, lasting=False)


def end_like(start: str, status: int, problem: int) -> NoReturn:
    if problem:
        sys.stderr.write(f"{start}: {os.strerror(problem)}\n")
        sys.stderr.flush()
        os._exit(127 if problem == errno.ENOENT else 126)
    if os.WIFSIGNALED(status):
        value = os.WTERMSIG(status)
        if value != signal.SIGKILL:
            signal.signal(value, signal.SIG_DFL)
        os.kill(os.getpid(), value)
    os._exit(os.WEXITSTATUS(status))
