"""The process of one task: `python -m cuwheel.clusters.child FOLDER`.

Its answer is a file in the folder; what it is at, lines on stdout. Without a folder it only tries to be apart.
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
from pathlib import Path
from typing import IO

from cuwheel.clusters.task import Answer, Task
from cuwheel.errors import EXIT_INTERRUPTED, MissingExtraError, NetworkError, NoHostCompilerError, UnavailableError
from cuwheel.support import codec, files, log, system_calls
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.support import opening, wording

# Of the machine, not of the task: another worker may do better.
_OF_THE_WORKER = (MissingExtraError, NetworkError, NoHostCompilerError, UnavailableError, UnreadableError)
_PATIENCE_S = 10.0
_SHOW_S = 0.5


def main(folder: Path) -> int:
    lines = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed by others must not be taken for ours
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs without it
    task = codec.decode((folder / "task.json").read_bytes(), Task)
    take_own_folder(files.cache_folder() / "builds", files.cache_folder() / "cluster" / "slots")
    threading.Thread(target=_end_with_worker, daemon=True).start()
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


def _end_with_worker() -> None:
    """A worker that was killed cannot end its tasks: they notice that nobody could write to them any more."""
    os.read(0, 1)
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
            self.show(wording.percent(self._done / self._total))

    def show(self, text: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SHOW_S
            with contextlib.suppress(OSError):
                self._lines.write(codec.encode(f"{self._label} {text}") + b"\n")
                self._lines.flush()


# Builds at one path at the same time: each process with its own folder there, in a namespace of its own. The path of a
# source is in the names of kernels, so all parts of a wheel are compiled at the same one.

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000  # CLONE_NEWNS and CLONE_NEWUSER of Linux
_BIND, _RECURSIVE, _PRIVATE = 1 << 12, 1 << 14, 1 << 18  # MS_BIND, MS_REC and MS_PRIVATE


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
            handle = opening.open_file(slots / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            if system_calls.lock(handle):
                _bind(mine, folder)
                return
            os.close(handle)
    except OSError as error:
        log.debug("builds at %s wait for each other: %s", folder, error)


def _bind(mine: Path, at: Path) -> None:
    """Raises OSError where the system does not allow it."""
    if sys.platform != "linux":
        raise OSError("only Linux has namespaces")
    system = ctypes.CDLL(None, use_errno=True)

    def check(status: int) -> None:
        if status != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    user, group = os.getuid(), os.getgid()
    if system.unshare(_NEW_MOUNTS) != 0:
        check(system.unshare(_NEW_MOUNTS | _NEW_USERS))
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    check(system.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None))
    check(system.mount(os.fsencode(mine), os.fsencode(at), None, _BIND, None))


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(Path(sys.argv[1])))
    _bind(Path("/"), Path("/"))
