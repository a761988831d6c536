"""The verb that cuts, and its way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.report import slim as report
from cuwheel.slimming import targets as stage
from cuwheel.slimming.request import SlimRequest

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.slim import Slim


@verb.of(SlimRequest)
def slim(request: SlimRequest) -> Slim:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load."""
    return report.answer_of(stage.slim(request), dry_run=request.dry_run)


def slim_undo(root: Path) -> Slim:
    """Every original of the environment or folder back in its place."""
    return report.settled(stage.take_back(root), root, "undo")


def slim_commit(root: Path) -> Slim:
    """Give up the originals of the environment or folder, and so free their space."""
    return report.settled(stage.settle(root), root, "commit")
