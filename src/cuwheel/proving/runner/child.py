"""One command run to its end, whatever that is: it may crash, hang, eat memory, print without end, leave others behind.

Memory is limited by looking: the sum over the check's processes, many times a second. A limit of the kernel on address
space would refuse CUDA, which reserves far more than it uses; one on data, twice what was allowed, stands behind the
looking for checks that use no GPU. Core files are never written.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from .output import Capture, Pipes, open_pipes

# The processes of a check: how much memory they hold, which are left, and their end.
#
# A check starts in a session of its own. What leaves the session still carries the mark in its environment.

MARK = "CUWHEEL_CHECK"
GROUPS = importlib.import_module(f"{__name__.partition('.')[0]}.support.process_groups")  # of cuwheel, or of the kit
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


def processes_of_session(session: int) -> list[Process]:
    """Those alive in a session, or in a job of Windows. Empty where there is no /proc to ask."""
    if sys.platform == "win32":
        return [Process(*each) for each in GROUPS.members(session)]
    return [process for process, its_session in _alive() if its_session == session]


def processes_of_check(session: int, mark: str) -> list[Process]:
    """Those alive in a session, or marked as the check's: a daemon has a session of its own."""
    if sys.platform == "win32":
        return processes_of_session(session)  # nothing leaves its job
    wanted = mark.encode()
    found = []
    for process, its_session in _alive():
        if its_session == session or (process.pid != os.getpid() and wanted in _environ(process.pid)):
            found.append(process)
    return found


def end_check(session: int, mark: str) -> None:
    """End all that a check left; `session`: below zero for none."""
    if sys.platform == "win32":
        GROUPS.end(session)
        GROUPS.forget(session)
        return
    if session > 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    remaining = processes_of_check(session, mark)
    for _ in range(_ROUNDS):
        if not remaining:
            break
        for process in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.01)
        remaining = processes_of_check(session, mark)


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
    end_check(-1, mark)


def with_mark(environ: Mapping[str, str], mark: str) -> dict[str, str]:
    """The variables with one more mark: a check may run checks of its own."""
    return {**environ, MARK: f"{environ.get(MARK, '')} {mark}".strip()}


def _alive() -> Iterator[tuple[Process, int]]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                yield from _process_of(int(name))


def _process_of(pid: int) -> Iterator[tuple[Process, int]]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        raw = file.read()
    front, _, back = raw.rpartition(b")")
    fields = back.split()
    if fields[_STATE] not in (b"Z", b"X"):
        name = front.partition(b"(")[2].decode("utf-8", "replace")
        yield Process(pid, name, int(fields[_RSS]) * _PAGE), int(fields[_SESSION])


def _environ(pid: int) -> bytes:
    """The variables of a process of ours; others' may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(_MOST_ENVIRON)
    except OSError:
        return b""


# Starts a check: it dies with the process that started it, and has no network if the system can cut it off.


# A process of its own between us and the check: code between fork and exec is not safe where the caller has threads.
# The descriptor closes when the check takes over; what is written to it before says why it could not.
_LAUNCH = """\
import os, sys
report, parent, cut, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "cut", sys.argv[4:]
os.set_inheritable(report, False)
NEWUSER, NEWNET, PDEATHSIG, KILL = 0x10000000, 0x40000000, 1, 9

def write(path, text):
    with open(path, "w") as file:
        file.write(text)

def loopback():
    # Programs talk to themselves over it; a new network has it switched off.
    import fcntl, socket, struct
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        asked = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(one, 0x8913, asked))[1]
        fcntl.ioctl(one, 0x8914, struct.pack("16sH14s", b"lo", flags | 1, b""))

def cut_off(libc):
    # The administrator needs no other user namespace, and keeps what she may do with devices.
    if os.geteuid() == 0 and libc.unshare(NEWNET) == 0:
        return loopback()
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(NEWUSER | NEWNET):
        import ctypes
        raise OSError(ctypes.get_errno(), "no network of its own: " + os.strerror(ctypes.get_errno()))
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", "%d %d 1" % (user, user))
    write("/proc/self/gid_map", "%d %d 1" % (group, group))
    loopback()

try:
    try:
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PDEATHSIG, KILL, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        if cut:
            raise
    if os.getppid() != parent:
        os._exit(1)
    if cut:
        cut_off(libc)
    os.execvp(words[0], words)
except Exception as error:
    os.write(report, (getattr(error, "strerror", None) or str(error) or type(error).__name__).encode()[:4000])
os._exit(127)
"""
_LONGEST_ERROR = 4096
_TRIAL_S = 20.0


class LaunchError(OSError):
    """The program was not started."""


def start(words: Sequence[str], environ: Mapping[str, str], folder: str, *, cut: bool) -> subprocess.Popen[bytes]:
    """In a session of its own, without a standard input; `cut`: without a network, which Windows cannot."""
    if sys.platform == "win32":
        return _in_a_job(words, environ, folder)
    reader, writer = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(writer), str(os.getpid()), "cut" if cut else "", *words],
            env=dict(environ),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(writer,),
        )
        os.close(writer)
        writer = -1
        answer = os.read(reader, _LONGEST_ERROR)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if answer:
        child.communicate()
        raise LaunchError(answer.decode("utf-8", "replace"))
    return child


def _in_a_job(words: Sequence[str], environ: Mapping[str, str], folder: str) -> subprocess.Popen[bytes]:
    """A job of Windows: the system ends all that is in it when we end."""
    program = shutil.which(words[0], path=environ.get("PATH")) or words[0]  # `npm` is `npm.cmd` there
    child = subprocess.Popen(
        [program, *words[1:]],
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **GROUPS.OPTIONS,
    )
    GROUPS.started(child.pid, with_us=True)
    return child


def can_cut_network() -> bool:
    """Whether this system lets us start a program without a network."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        child = start([sys.executable, "-I", "-S", "-c", ""], os.environ, os.curdir, cut=True)
        child.communicate(timeout=_TRIAL_S)
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return child.returncode == 0


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


def run_command(
    words: Sequence[str], environ: Mapping[str, str], folder: str, limits: Limits, capture: Capture, mark: str
) -> End:
    """Run in a session of its own without a standard input. Nothing that it started is left."""
    began = time.monotonic()
    try:
        child = start(words, with_mark(environ, mark), folder, cut=limits.cut)
    except (OSError, ValueError) as error:
        return End(None, "", time.monotonic() - began, 0, (), error=_why(error))
    watch = _Watch(child, limits, began)
    try:
        _limit(child.pid, limits)
        with ended_with_us(child.pid, mark), contextlib.closing(open_pipes(child, capture)) as streams:
            stopped = _attend(child, streams, watch)
            remaining = () if stopped else _still_running(child.pid, mark, streams)
    finally:
        end_check(child.pid, mark)
        # A process stuck in the kernel (a hung GPU driver) cannot be killed: leave it rather than hang too.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_WAIT_S)
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    status = None if stopped else child.returncode
    return End(status, stopped, time.monotonic() - began, watch.most, remaining)


def _attend(child: subprocess.Popen[bytes], streams: Pipes, watch: _Watch) -> str:
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


def _still_running(session: int, mark: str, streams: Pipes) -> tuple[str, ...]:
    """What still runs a moment after the check itself has ended."""
    until = time.monotonic() + _GRACE_S
    while True:
        remaining = processes_of_check(session, mark)
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
        found = processes_of_session(self._child.pid)
        self.most = max(self.most, sum(each.memory for each in found))
        if self.most > self._limits.memory:
            return "memory"
        return "processes" if len(found) > _MOST_PROCESSES else ""


def _limit(pid: int, limits: Limits) -> None:
    """Sets limits from outside: code between fork and exec is not safe where the caller has threads."""
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
