"""One library, rewritten as its plan says, and read again before it takes its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.rewrite.values import Dropped, FileResult, Recompressed

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.rewrite.values import LibraryPlan

__all__ = ["Dropped", "FileResult", "Recompressed", "slim_library"]


def slim_library(source: Path, target: Path, plan: LibraryPlan) -> FileResult:
    """Write the library that `plan` describes to `target`: beside it first, then renamed. `source` is only read.

    Where the plan changes nothing, or the file cannot shrink, nothing is written and `written` is false.
    """
    raise NotImplementedError
