"""`publish --copy-to`: an index to where it is served, in an order in which no reader meets a page before its file.

Files come first, then the pages of projects, then those that list them; what is gone is removed when no page names it
any more. A folder, which may be mounted, is copied file by file under its final name; `HOST:FOLDER` is rsync's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cuwheel.delivery import index_folder
from cuwheel.delivery.publishing import Change
from cuwheel.delivery.simple_api import SIMPLE
from cuwheel.errors import UsageError
from cuwheel.support import confined, files, log, process

_REMOTE = re.compile(r"(?:[\w.-]+@)?[\w.-]{2,}:(?!\\).+")  # not a drive of Windows
_TIMEOUT_S = 24 * 3600.0


def copy_index(root: Path, place: str) -> tuple[Change, ...]:
    """What was written and removed there; by rsync, what it says."""
    if _REMOTE.fullmatch(place):
        return tuple(_by_rsync(root, place))
    to = Path(place)
    if to.exists() and not (to / f"{index_folder.list_page()}.json").exists() and any(to.iterdir()):
        raise UsageError(f"{to} is not a copy of an index: it has other files", hint="name a new or empty folder")
    with files.errors_of(to, "copy it again: what is there already is not copied twice"):
        return tuple(_into_folder(root, to))


def ranked(root: Path) -> list[Path]:
    """Every file of an index, relative, in the order in which readers may see them."""
    found = [each.relative_to(root) for each in sorted(root.rglob("*")) if each.is_file()]
    served = [each for each in found if not any(part.startswith(".") for part in each.parts)]  # not what is private
    return sorted(served, key=_rank)


def _rank(path: Path) -> int:
    """0: files; 1: pages of projects, which name them; 2: all that names projects, locks, sums and the page."""
    if path.parts[0] == index_folder.FILES:
        return 0
    place = path.parts.index(SIMPLE) if SIMPLE in path.parts else -1
    return 1 if place >= 0 and len(path.parts) - place > 2 else 2  # noqa: PLR2004 - simple/NAME/index.html


def _into_folder(root: Path, to: Path) -> Iterator[Change]:
    here = ranked(root)
    for path in here:
        source, target = root / path, to / path
        if _is_same(source, target):
            continue
        files.copy(source, confined.make_folders(to, path.parent.as_posix()) / path.name)
        os.utime(target, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
        yield Change(path=path.as_posix(), action="written", size=source.stat().st_size)
    for path in reversed(
        [each for each in ranked(to) if each not in set(here)]
    ):  # what lists goes before what is listed
        (to / path).unlink()
        yield Change(path=path.as_posix(), action="removed")


def _is_same(source: Path, target: Path) -> bool:
    """Whether a file need not be copied, as rsync decides it: a page may change and keep its length, not its time."""
    if not target.is_file():
        return False
    one, other = source.stat(), target.stat()
    return one.st_size == other.st_size and one.st_mtime_ns // 10**9 == other.st_mtime_ns // 10**9


def _by_rsync(root: Path, place: str) -> Iterator[Change]:
    """Three times: files, pages of projects, everything; the last one removes what is gone."""
    program = process.needed_program("rsync", "copying an index to another machine")
    common = [program, "--archive", "--delay-updates", "--out-format=%n", "--exclude=.*"]
    below = ("--include=*/", f"--include={SIMPLE}/*/*", f"--include=**/{SIMPLE}/*/*")
    for options in (
        (f"--include=/{index_folder.FILES}/***", "--exclude=*"),
        (*below, "--exclude=*", "--prune-empty-dirs"),
        ("--delete-after",),
    ):
        done = process.run([*common, *options, f"{root}/", place], timeout=_TIMEOUT_S)
        for line in done.stdout.splitlines():
            name = line.removeprefix("deleting ")
            if name and not name.endswith("/"):
                yield Change(path=name, action="removed" if name != line else "written")
    log.info("copied to %s", place)
