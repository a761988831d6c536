"""One cuwheel at a time on the same files, and scratch folders that the next one clears away."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from cuwheel.errors import UnreadableError
from cuwheel.support import confined, log, system_calls
from cuwheel.support import scratch as scratches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCRATCH = ".cuwheel-slim-"
_LOCK = "lock"


def wait(handle: int, *, shared: bool = False, what: str = "") -> None:
    """Until the lock on an open file is ours. `shared`: beside others who share it. `what`: that another process has.

    The system releases it at any death, so there are no stale locks.
    """
    if not system_calls.lock(handle, shared=shared):
        log.info("waiting for another cuwheel process%s", f" that has {what}" if what else "")
        system_calls.wait_for_lock(handle, shared=shared)


@contextlib.contextmanager
def locked(folder: Path, *, patient: bool = False) -> Iterator[None]:
    """Held while the process lives: the system releases it at any death, so there are no stale locks.

    The folder is made, and removed again if nothing else is left in it. `patient`: another process that has it is
    waited for.
    """
    handle = _wait_for_none(folder, patient=patient)
    try:
        yield
    finally:
        if _is_alone(folder):
            system_calls.remove_locked(folder / _LOCK, handle)
            with contextlib.suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
        else:
            os.close(handle)


def _is_alone(folder: Path) -> bool:
    """Whether the lock is all that is in it."""
    try:
        return [each.name for each in folder.iterdir()] == [_LOCK]
    except OSError:
        return False


def _wait_for_none(folder: Path, *, patient: bool) -> int:
    path = folder / _LOCK
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = confined.open_plain(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            continue  # another run ended and took the folder with it
        except OSError as error:
            raise UnreadableError.from_os(
                error, path, hint="cuwheel keeps its journal there, so it must be writable"
            ) from error
        if patient:
            wait(handle, what=str(folder.parent.parent))
        elif not scratches.take(handle):
            holder = os.read(handle, 32).decode(errors="replace").strip() or "?"
            os.close(handle)
            raise UnreadableError(
                folder.parent.parent,
                f"another cuwheel process ({holder}) is changing it",
                hint="wait until it has finished, then run this again",
            )
        if scratches.still_there(handle, path):
            with contextlib.suppress(OSError):  # on a full disk others do not learn who holds it, no more
                os.ftruncate(handle, 0)
                system_calls.write_at(handle, f"{os.getpid()}\n".encode(), 0)
            return handle
        os.close(handle)


@contextlib.contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """A folder on the file system of the result, gone afterwards. Those of runs that were killed go too."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(scratches.folder(beside, _SCRATCH))
        except OSError as error:
            raise UnreadableError.from_os(error, beside) from error
        yield made
