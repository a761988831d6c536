"""What a crash of the machine would leave, told by the order of calls that `faults.c` wrote down.

A kill leaves everything that was written, in any order; a crash leaves what was synced. So: the bytes of a file are
synced before it gets its name; where there is a journal, it and its name are before anything that it tells of
changes, and the names that changed are before it goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.campaign.jobs import Job


def problems(job: Job, folder: Path, notes: Path) -> Iterator[str]:
    if not job.durable:
        return
    journal = folder / job.synced_journal if job.synced_journal else None
    unsynced: set[str] = set()  # files with bytes, and folders with names, that a crash would lose
    changes = 0
    for line in notes.read_text(errors="surrogateescape").splitlines():
        what, first, second = line.split("\t")
        if what == "write":
            unsynced.add(first)
        elif what == "sync":
            unsynced.discard(first)
        else:
            place = Path(second or first)
            if second and first in unsynced:
                unsynced.remove(first)
                unsynced.add(second)
            if _counts(place, folder, job) and not place.name.startswith("."):
                changes += 1
                yield from _too_early(place, journal, unsynced, renamed=bool(second))
            unsynced.add(str(place.parent))
            if place == journal and not second:
                lost = [each for each in unsynced if _counts(Path(each), folder, job) and Path(each).exists()]
                yield from (f"the journal goes before this is on the disk: {each}" for each in lost)
    if not changes:
        yield f"nothing of {', '.join(job.durable)} was seen to change: what is durable is somewhere else now"


def _too_early(place: Path, journal: Path | None, unsynced: set[str], *, renamed: bool) -> Iterator[str]:
    if renamed and str(place) in unsynced:
        yield f"{place} gets its name before its bytes are on the disk"
    if journal and {str(journal), str(journal.parent)} & unsynced:
        yield f"{place} changes before the journal is on the disk"


def _counts(place: Path, folder: Path, job: Job) -> bool:
    if not place.is_relative_to(folder):
        return False
    inside = place.relative_to(folder)
    return inside.as_posix().startswith(job.durable) and not any(each.startswith(job.private) for each in inside.parts)
