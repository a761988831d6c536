"""The folder that tells the shims of a session what to do. It holds variables as they are, secrets among them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import calls, instructions, sealing
from cuwheel.support import scratch, system_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "cuwheel-record-"
_LOCK = "lock"  # held as long as the session lives: the kernel lets go of it however that ends


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new one, for its owner alone; gone afterwards. Those that killed sessions have left are removed first."""
    _sweep(Path(tempfile.gettempdir()))
    # Windows renames no open file. There nobody removes one either: who comes between has found nothing.
    first = _LOCK if os.name == "nt" else f"{_LOCK}.new"
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name, Path(name, first).open("wb") as lock:
        system_calls.wait_for_lock(lock.fileno())  # nobody else knows of it
        if first != _LOCK:
            Path(lock.name).rename(Path(name, _LOCK))  # under this name it is never free while we live
        yield Path(name)


def _sweep(place: Path) -> None:
    """Also where the build outlived its session: shims that find no orders step aside.

    A session that was killed could not mask what its build printed: that is done now, by the variables that it left.
    """
    for path in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if system_calls.is_ours(path.lstat()) and not path.is_symlink() and _is_free(path / _LOCK):
                _seal(path)
                shutil.rmtree(path, ignore_errors=True)


def _seal(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        given = instructions.read(path)
        if given.masked and (given.record / calls.HEAD_FILE).is_file():
            sealing.mask(given.record, given.environ)


def _is_free(lock: Path) -> bool:
    """False if it does not exist yet: a session is about to make it."""
    with lock.open("rb") as handle:
        return scratch.take(handle.fileno())
