"""The process of one task: `python -m cuwheel.clusters.child FOLDER`.

Its answer is a file in the folder; what it is at, lines on stdout.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import importlib
import itertools
import os
import signal
import sys
import threading
import time
import traceback
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cuwheel.clusters.task import Answer, Task
from cuwheel.errors import (
    EXIT_INTERRUPTED,
    CuwheelError,
    MissingExtraError,
    NetworkError,
    NoHostCompilerError,
    UnavailableError,
    UnreadableError,
)
from cuwheel.support import codec, files, log, system_calls, wording

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the machine, not of the task: another worker may do better.
_OF_THE_WORKER = (MissingExtraError, NetworkError, NoHostCompilerError, UnavailableError, UnreadableError)
_LOOK_S = 0.5
_PATIENCE_S = 10.0
_SHOW_S = 0.5


def main(folder: Path) -> int:
    lines = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed by others must not be taken for ours
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs without it
    task = codec.decode((folder / "task.json").read_bytes(), Task)
    take_own_folder(files.cache_folder() / "builds", files.cache_folder() / "cluster" / "slots")
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    log.listen(level="info", on_progress=lambda label, total: contextlib.nullcontext(_Lines(lines, label, total)))
    try:
        answer = _answer(task, folder)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    files.write(folder / "answer.json", codec.encode(answer))
    return 0


def _answer(task: Task, folder: Path) -> Answer:
    module, _, name = task.function.partition(":")
    work = folder / "work"
    try:
        work.mkdir()
        inputs = {each: folder / "inputs" / each for each in task.inputs}
        text, made = getattr(importlib.import_module(module), name)(task, inputs, work)
        return Answer(
            text=text,
            hashes={each: files.sha256(path) for each, path in made.items()},
            places={each: str(path) for each, path in made.items()},
        )
    except CuwheelError as error:
        return Answer(problem=error.message, hint=error.hint, lacking=isinstance(error, _OF_THE_WORKER))
    except OSError as error:
        return Answer(problem=UnreadableError.from_os(error).message, lacking=True)
    except Exception as error:  # noqa: BLE001 - the last resort: it is told where the person is
        traceback.print_exception(error)
        return Answer(problem=f"this is a bug in cuwheel: {type(error).__name__}: {error}")


def _end_with(parent: int) -> None:
    """A worker that was killed cannot end its tasks."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    _thread.interrupt_main()
    time.sleep(_PATIENCE_S)
    os._exit(EXIT_INTERRUPTED)


class _Lines:
    """Progress as lines for the worker, not more of them than somebody reads."""

    def __init__(self, lines: IO[bytes], label: str, total: int | None) -> None:
        self._lines, self._label, self._total = lines, label, total
        self._done, self._next = 0, 0.0

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if self._total:
            self.show(f"{wording.percent(self._done / self._total)}")

    def show(self, text: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SHOW_S
            with contextlib.suppress(OSError):
                self._lines.write(codec.encode(f"{self._label} {text}") + b"\n")
                self._lines.flush()


# Builds at one path at the same time: each process with its own folder there, in a namespace of its own. The path of a
# source is in the names of kernels, so all parts of a wheel are compiled at the same one.

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS and CLONE_NEWUSER, MS_BIND, MS_REC and MS_PRIVATE of Linux
_NEW_USERS = 0x10000000
_BIND = 4096
_RECURSIVE = 16384
_PRIVATE = 1 << 18


def take_own_folder(folder: Path, slots: Path) -> None:
    """This process, and all that it starts, sees a folder of its own at `folder`. Where that cannot be, it waits there.

    It must not have started a thread. The folders are kept in `slots` and taken again: what was built is found there.
    Each is the first whose lock no other process of this machine has; the system lets go of it when this one ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in itertools.count():
            mine = slots / str(number)
            mine.mkdir(parents=True, exist_ok=True)
            handle = system_calls.open_file(slots / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            if system_calls.lock(handle):
                _bind(mine, folder)
                return
            os.close(handle)
    except OSError as error:
        log.debug("builds at %s wait for each other: %s", folder, error)


@cache
def can_be_apart() -> bool:
    """Tried in a copy of this process."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        try:
            _bind(Path("/"), Path("/"))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _bind(mine: Path, at: Path) -> None:
    """Raises OSError where the system does not allow it."""
    if sys.platform != "linux":
        raise OSError("only Linux has namespaces")
    system = ctypes.CDLL(None, use_errno=True)

    def call(function: Callable[..., int], *words: object) -> None:
        if function(*words) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    user, group = os.getuid(), os.getgid()
    if system.unshare(_NEW_MOUNTS) != 0:
        call(system.unshare, _NEW_MOUNTS | _NEW_USERS)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    call(system.mount, None, b"/", None, _RECURSIVE | _PRIVATE, None)
    call(system.mount, os.fsencode(mine), os.fsencode(at), None, _BIND, None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
