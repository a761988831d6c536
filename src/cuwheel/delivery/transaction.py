"""Steps carried out: everything new is written beside its place first, then renamed, one step after the other.

Until the first name changes the index is untouched, however long the copying takes and however it ends. A journal is
there for the run after one that was killed in between. In this order it also survives a crash of the machine: the
journal and all new bytes are on the disk before the first name changes, all names before the journal goes.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import IO, TYPE_CHECKING

from cuwheel.delivery.index_folder import JOURNAL
from cuwheel.delivery.steps import Copy, Remove
from cuwheel.errors import UnreadableError
from cuwheel.support import codec, files, log, system_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.index_folder import IndexFolder, Journal
    from cuwheel.delivery.steps import Step
    from cuwheel.support.log import Progress

_HINT = "the index still serves what it did before; publish again to go on"


def execute(index: IndexFolder, steps: Sequence[Step], journal: Journal) -> None:
    """Under the index's lock."""
    with files.errors_of(index.root, _HINT):
        # A run may also have been killed while it wrote the journal itself: then there is none, only its draft.
        _clear(index, index.root if index.journal() is not None else index.path(JOURNAL).parent)
        if steps:
            _execute(index, steps, journal)
        index.path(JOURNAL).unlink(missing_ok=True)


def _execute(index: IndexFolder, steps: Sequence[Step], journal: Journal) -> None:
    files.must_have_room(index.root, sum(each.size for each in steps if isinstance(each, Copy)))
    repairing = index.path(JOURNAL).exists()
    files.write(index.path(JOURNAL), codec.encode(journal))
    staged: list[Path | None] = []
    try:
        _stage_all(index, steps, staged)
    except BaseException:
        with contextlib.suppress(OSError):
            for unfinished in filter(None, staged):
                unfinished.unlink(missing_ok=True)
                _remove_empty(unfinished.parent, index.root)
            if not repairing:
                index.path(JOURNAL).unlink()
        raise
    for step, path in zip(steps, staged, strict=True):
        _settle(index, step, path)
    changed = {index.path(each.path).parent for each in steps}
    files.sync_all((), sorted({folder for each in changed for folder in _folders(index, each)}))


def _stage_all(index: IndexFolder, steps: Sequence[Step], staged: list[Path | None]) -> None:
    """Everything new on the disk, under names that nobody knows; those are added to `staged`, one for each step."""
    room = sum(each.size for each in steps if isinstance(each, Copy))
    with log.progress("publishing", room or None) as progress:
        for step in steps:
            to = index.path(step.path)
            staged.append(None if isinstance(step, Remove) else files.beside(to))
            if path := staged[-1]:
                to.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    _fill(file, step, progress)
    journal = index.path(JOURNAL)
    files.sync_all((journal, *filter(None, staged)), _folders(index, journal.parent))


def _fill(file: IO[bytes], step: Step, progress: Progress) -> None:
    """What is published is what was examined: a file that changes in between is refused."""
    if not isinstance(step, Copy):
        file.write(b"" if isinstance(step, Remove) else step.data)
        return
    hasher = hashlib.sha256()
    for chunk in files.chunks(step.source):
        hasher.update(chunk)
        file.write(chunk)
        progress.advance(len(chunk))
    if hasher.hexdigest() != step.sha256:
        raise UnreadableError(
            step.source, "it changed while it was being published", hint="publish it again; nothing was changed"
        )


def _settle(index: IndexFolder, step: Step, staged: Path | None) -> None:
    path = index.path(step.path)
    if staged:
        system_calls.rename_over(staged, path)
    else:
        path.unlink(missing_ok=True)
        _remove_empty(path.parent, index.root)


def _folders(index: IndexFolder, inner: Path) -> Iterator[Path]:
    """From a folder up to the root, since any of them may be new; not those that went with the last file."""
    for folder in (inner, *inner.parents):
        if folder.is_dir():
            yield folder
        if folder == index.root:
            return


def _remove_empty(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # one that is not empty stays
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _clear(index: IndexFolder, folder: Path) -> None:
    """What a run that was killed had not finished: nobody else writes while we hold the lock."""
    for path in list(folder.rglob(".*.part")):
        path.unlink(missing_ok=True)
        _remove_empty(path.parent, index.root)
