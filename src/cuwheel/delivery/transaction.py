"""Steps carried out: each file whole or not at all, with a journal for the run after one that was interrupted."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

import msgspec

from cuwheel import files, log
from cuwheel.delivery import layout
from cuwheel.delivery.index_folder import JOURNAL
from cuwheel.delivery.steps import Copy, Remove
from cuwheel.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.delivery.index_folder import IndexFolder, Journal
    from cuwheel.delivery.steps import Step
    from cuwheel.log import Progress

_HINT = "the index still serves what it did before; publish again to go on"


def carry_out(index: IndexFolder, steps: Sequence[Step], journal: Journal) -> None:
    """Under the index's lock."""
    with files.errors_of(index.root, _HINT):
        if index.journal() is not None:
            _clear(index)
        if steps:
            _carry_out(index, steps, journal)
        index.path(JOURNAL).unlink(missing_ok=True)


def _carry_out(index: IndexFolder, steps: Sequence[Step], journal: Journal) -> None:
    room = sum(each.size for each in steps if isinstance(each, Copy))
    files.must_have_room(index.root, room)
    files.write(index.path(JOURNAL), msgspec.json.encode(journal), durable=True)
    unlinked: list[Path] = []  # of this run, as long as no page can know of them
    linking = False
    try:
        with log.progress("publishing", room or None) as progress:
            for step in steps:
                linking = linking or not step.path.startswith(f"{layout.FILES}/")
                if not linking:
                    unlinked.append(index.path(step.path))
                _do(index, step, progress)
    except BaseException:
        if not linking:
            with contextlib.suppress(OSError):
                for path in unlinked:
                    path.unlink(missing_ok=True)
                index.path(JOURNAL).unlink()
        raise
    for folder in sorted({index.path(each.path).parent for each in steps}):
        files.sync_folder(folder)


def _do(index: IndexFolder, step: Step, progress: Progress) -> None:
    path = index.path(step.path)
    if isinstance(step, Remove):
        path.unlink(missing_ok=True)
        _remove_empty(path.parent, index.root)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(step, Copy):
        _copy(step, path, progress)
    else:
        files.write(path, step.data, durable=True)


def _copy(step: Copy, to: Path, progress: Progress) -> None:
    """What is published is what was examined: a file that changes in between is refused."""
    hasher = hashlib.sha256()
    with files.replacing(to, durable=True) as file:
        for chunk in files.chunks(step.source):
            hasher.update(chunk)
            file.write(chunk)
            progress.advance(len(chunk))
        if hasher.hexdigest() != step.sha256:
            raise UnreadableError(
                step.source, "it changed while it was being published", hint="publish it again; nothing was changed"
            )


def _remove_empty(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # one that is not empty stays
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _clear(index: IndexFolder) -> None:
    """What a run that was killed had not finished writing: nobody else writes while we hold the lock."""
    for path in index.root.rglob(".*.part"):
        path.unlink(missing_ok=True)
