"""Files that a process has loaded: Windows neither replaces nor removes them, but lets them be renamed.

So they go aside, into the folder of the journal. Between that and the new file nothing has the name: whoever comes next
knows by the file that is aside. What is settled stays there until the journal goes, or the next run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FOLDER = "in-use"


def put(made: Path, path: Path, folder: Path, number: int) -> None:
    """`made` gets the name `path`. `folder`, `number`: of the journal, and of the step in it."""
    away = folder / FOLDER / str(number)
    try:
        made.replace(path)
    except PermissionError:
        away.parent.mkdir(exist_ok=True)
        path.rename(away)
        try:
            made.replace(path)
        except BaseException:
            away.rename(path)
            raise
    if os.path.lexists(away):
        away.replace(_settled(away))


def take_away(path: Path, folder: Path, number: int) -> None:
    """Nothing has the name `path` any more."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        away = folder / FOLDER / str(number)
        away.parent.mkdir(exist_ok=True)
        path.rename(_settled(away))


def was_interrupted(path: Path, folder: Path, number: int) -> bool:
    """Whether a file went aside and nothing has taken its name yet."""
    return not os.path.lexists(path) and os.path.lexists(folder / FOLDER / str(number))


@contextlib.contextmanager
def modes_kept(paths: Sequence[Path]) -> Iterator[None]:
    """Clearing another name of a file changes whether it may be written, on Windows: put right afterwards."""
    before = {path: path.stat().st_mode for path in paths if os.name == "nt" and path.is_file()}
    yield
    for path, mode in before.items():
        path.chmod(mode)


def clear(folder: Path) -> None:
    """As much of a folder as the system lets go.

    Windows removes no file that may not be written: that is changed first.
    """
    if os.name == "nt":
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(stat.S_IWRITE)
    shutil.rmtree(folder, ignore_errors=True)


def _settled(away: Path) -> Path:
    return away.with_name(f"{away.name}-settled-{time.monotonic_ns():x}")
