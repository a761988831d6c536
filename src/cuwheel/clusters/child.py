"""The process of one task: `python -m cuwheel.clusters.child FOLDER`.

Its answer is a file in the folder; what it is at, lines on stdout.
"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO

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
from cuwheel.support import codec, files, log, wording
from cuwheel.support.own_folder import own_folder

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
    with own_folder(files.cache_folder() / "builds", files.cache_folder() / "cluster" / "slots"):
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
            files={each: files.sha256(path) for each, path in made.items()},
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
