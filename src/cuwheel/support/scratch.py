"""Folders that are gone at the end, also those of runs that were killed: the next run clears them away.

Nothing but the standard library of Python 3.9: it also travels in the kit.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cuwheel_core.support import opening

from . import system_calls  # relative: in the kit the package has another name

_LOCK_SUFFIX = ".lock"


@contextlib.contextmanager
def folder(
    beside: Path, prefix: str, on_leftover: Callable[[str], object] | None = None, *, keep: bool = False
) -> Iterator[Path]:
    """A new folder in `beside`. `on_leftover`: told the name of each folder that a dead run left, before it goes.

    `keep`: it stays, without its lock, when the block ends; that of a run which was killed is not wanted by anybody.

    Its lock stands beside it and is taken before the folder is made: at whatever moment a run is killed, what it
    leaves has a lock that nobody holds.
    """
    import shutil  # noqa: PLC0415 - with all the compressions that it knows 2 ms; who reads a file needs no scratch folder

    beside.mkdir(parents=True, exist_ok=True)
    for old in beside.glob(f"{prefix}*{_LOCK_SUFFIX}"):
        _clear(old, on_leftover)
    handle, lock = _new_lock(beside, prefix)
    made = lock.with_suffix("")
    try:
        made.mkdir(mode=0o700)
        yield made
    finally:
        if not keep:
            shutil.rmtree(made, ignore_errors=True)
        system_calls.remove_locked(lock, handle)


def still_there(handle: int, path: Path) -> bool:
    """The holder before us may have removed the file between our opening and locking it."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _new_lock(beside: Path, prefix: str) -> tuple[int, Path]:
    import tempfile  # noqa: PLC0415 - it imports shutil

    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=_LOCK_SUFFIX, dir=beside)
        path = Path(name)
        if system_calls.lock(handle) and still_there(handle, path):
            return handle, path
        os.close(handle)  # another run took it for one left behind, before it was ours


def _clear(lock: Path, on_leftover: Callable[[str], object] | None) -> None:
    """Unless its owner lives, or is another user."""
    import shutil  # noqa: PLC0415 - see above

    with contextlib.suppress(OSError):
        handle = opening.open_file(lock, os.O_RDWR | opening.NOT_A_LINK | opening.AT_ONCE)
        try:
            dead = system_calls.is_ours(os.fstat(handle)) and system_calls.lock(handle) and still_there(handle, lock)
            if dead:
                if on_leftover:
                    on_leftover(lock.with_suffix("").name)
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        except BaseException:
            os.close(handle)
            raise
        if dead:
            system_calls.remove_locked(lock, handle)
        else:
            os.close(handle)
