"""What this machine remembers of tasks: answers that are used again, and how long each kind took."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters.task import Done
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import codec, files, log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.clusters.task import Task


# Files by the hash of their content, on either side; they travel in pieces, and count when the whole has its hash.

PIECE = 64 << 20  # Dask copies larger ones once more
_KEPT_S = 14 * 24 * 3600.0


def blob_folder() -> Path:
    """On this machine, for all its workers."""
    return files.cache_folder() / "cluster" / "blobs"


def blob_path(sha256: str) -> Path:
    return blob_folder() / sha256


def has_blob(sha256: str) -> bool:
    """Whether it is there and whole: a disk may have lost or changed it."""
    path = blob_path(sha256)
    try:
        found = files.sha256(path)
    except UnreadableError:
        return False
    if found != sha256:
        path.unlink(missing_ok=True)
        return False
    with contextlib.suppress(OSError):
        os.utime(path)
    return True


def add_blob(path: Path) -> str:
    """A file of ours, kept until it has been fetched."""
    sha256 = files.sha256(path)
    if not has_blob(sha256):
        blob_folder().mkdir(parents=True, exist_ok=True)
        files.copy(path, blob_path(sha256))
    return sha256


def read_pieces(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return list(iter(lambda: file.read(PIECE), b""))


def receive_blob(sha256: str, content: Iterable[bytes], to: Path) -> Path:
    """Under the name `to`, where the whole has its hash."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(to) as file:
        for piece in content:
            file.write(piece)
        file.flush()
        if files.sha256(Path(file.name)) != sha256:
            raise MalformedError(to.name, "arrived with another hash than its sender said")
    return to


def prune_blobs(now: float | None = None) -> None:
    """What nobody has used for two weeks."""
    limit = (now or time.time()) - _KEPT_S
    with contextlib.suppress(OSError):
        for path in blob_folder().iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < limit:
                    path.unlink()


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


def new_place(folder: Path, name: str) -> Path:
    """Where files of an answer arrive, of those under one `name`."""
    try:
        (folder / "arriving" / name).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=folder / "arriving" / name))
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error


def keep_answer(folder: Path, key: str, done: Done) -> Done:
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


def kept_answer(folder: Path, key: str, task: Task) -> Done | None:
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
