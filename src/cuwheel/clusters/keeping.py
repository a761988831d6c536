"""What this machine remembers of tasks: answers that are used again, and how long each kind took."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters.task import Done
from cuwheel.errors import UnreadableError
from cuwheel.support import codec, files, log

if TYPE_CHECKING:
    from cuwheel.clusters.task import Task

_NOTE = "answer.json"
_TIMES = "times.json"
_MOST_TIMES = 10_000


class Kept(Struct, frozen=True, kw_only=True):
    """`files`: name → hash."""

    text: str
    files: dict[str, str]
    worker: str
    began: float
    ended: float


def new_place(folder: Path) -> Path:
    """Where files of an answer arrive."""
    try:
        (folder / "arriving").mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=folder / "arriving"))
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error


def keep(folder: Path, key: str, done: Done) -> Done:
    """An answer under the hash of its inputs. The note is written last: what has none is no answer."""
    place = folder / "answers" / key
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    moved = {name: Path(shutil.move(path, place / name)) for name, path in done.files.items()}
    note = Kept(
        text=done.text,
        files={name: files.sha256(path) for name, path in moved.items()},
        worker=done.worker,
        began=done.began,
        ended=done.ended,
    )
    files.write(place / _NOTE, codec.encode(note), durable=True)
    return replace(done, files=moved)


def kept(folder: Path, key: str, task: Task) -> Done | None:
    """The answer of an earlier run, if its files are still what they were."""
    place = folder / "answers" / key
    try:
        found = codec.decode((place / _NOTE).read_bytes(), Kept)
        if any(files.sha256(place / name) != sha256 for name, sha256 in found.files.items()):
            return None
    except (OSError, UnreadableError, msgspec.DecodeError) as error:
        log.debug("%s has no answer: %s", place, error)
        return None
    return Done(
        task=task, text=found.text, files={name: place / name for name in found.files}, worker=found.worker, cached=True
    )


class Times:
    """Seconds that tasks took, by their labels: the longest go first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _TIMES
        self._seconds: dict[str, float] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._seconds = codec.decode(self._path.read_bytes(), dict[str, float])

    def of(self, task: Task) -> float | None:
        return self._seconds.get(task.label) if task.label else None

    def note(self, done: Done) -> None:
        if done.task.label:
            self._seconds.pop(done.task.label, None)
            self._seconds[done.task.label] = round(done.ended - done.began, 3)
            newest = dict(list(self._seconds.items())[-_MOST_TIMES:])
            with contextlib.suppress(OSError, UnreadableError):
                files.write(self._path, codec.encode(newest))
