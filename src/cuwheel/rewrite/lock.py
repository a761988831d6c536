"""One cuwheel at a time on the same files, and scratch folders that the next one clears away."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import confined
from cuwheel.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRATCH = ".cuwheel-slim-"
_LOCK = "lock"
_LOCK_SUFFIX = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Held while the process lives: the system releases it at any death, so there are no stale locks.

    The folder is made, and removed again if nothing else is left in it.
    """
    handle = _wait_for_none(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if [each.name for each in folder.iterdir()] == [_LOCK]:
                (folder / _LOCK).unlink()
                folder.rmdir()
                folder.parent.rmdir()
        os.close(handle)


def _wait_for_none(folder: Path) -> int:
    path = folder / _LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = confined.open_plain(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            continue  # another run ended and took the folder with it
        except OSError as error:
            raise UnreadableError.from_os(
                error, path, hint="cuwheel keeps its journal there: it must be writable"
            ) from error
        if not _take(handle):
            holder = os.read(handle, 32).decode(errors="replace").strip() or "?"
            os.close(handle)
            raise UnreadableError(
                folder.parent.parent,
                f"another cuwheel (process {holder}) is changing it",
                hint="wait for it to end, then run this again",
            )
        if _still_there(handle, path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            return handle
        os.close(handle)


def _take(handle: int) -> bool:
    import fcntl  # noqa: PLC0415 - not on Windows, where no environment can be slimmed

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_there(handle: int, path: Path) -> bool:
    """The holder before us may have removed the file between our opening and locking it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """A folder on the file system of the result, gone afterwards. Those of runs that were killed go too.

    Its lock stands beside it and is taken before the folder is made: at whatever moment a run is killed, what it
    leaves has a lock that nobody holds.
    """
    try:
        beside.mkdir(parents=True, exist_ok=True)
        for old in beside.glob(f"{_SCRATCH}*{_LOCK_SUFFIX}"):
            _clear(old)
        handle, lock = _new_lock(beside)
        folder = lock.with_suffix("")
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise UnreadableError.from_os(error, beside) from error
    try:
        yield folder
    finally:
        _remove(folder, lock)
        os.close(handle)


def _new_lock(beside: Path) -> tuple[int, Path]:
    while True:
        handle, name = tempfile.mkstemp(prefix=_SCRATCH, suffix=_LOCK_SUFFIX, dir=beside)
        path = Path(name)
        if _take(handle) and _still_there(handle, path):
            return handle, path
        os.close(handle)  # another run took it for one left behind, before it was ours


def _clear(lock: Path) -> None:
    """Unless its owner lives."""
    with contextlib.suppress(OSError):
        handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _take(handle) and _still_there(handle, lock):
                _remove(lock.with_suffix(""), lock)
        finally:
            os.close(handle)


def _remove(folder: Path, lock: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        lock.unlink()
