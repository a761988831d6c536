"""What of a library its machines load: pure, from a survey with every entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.rewrite.values import EntryDecision, LibraryPlan, SlimOptions

if TYPE_CHECKING:
    from cuwheel.inspection.values import Library

__all__ = ["EntryDecision", "LibraryPlan", "SlimOptions", "decide"]


def decide(library: Library, options: SlimOptions) -> LibraryPlan:
    """`library` must have been surveyed with `detail="entries"`."""
    raise NotImplementedError
