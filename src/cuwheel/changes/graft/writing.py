"""A library as it was decided: written beside, read again, held against the plan and against the base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.graft import host, loading
from cuwheel.changes.graft.subject import Subject
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.changes.graft.deciding import Decision

_HINT = "nothing was written; this is a bug in cuwheel: please report it with the name of the package"


def expected_size(decision: Decision) -> int:
    """Of the library that would be written."""
    if not decision.containers:
        return decision.base.buffer.size
    return rewrite.draft_grown(
        decision.base.buffer, decision.contents, None, drop_signature=decision.base.drop_signature
    ).size


def write(decision: Decision, target: Path) -> int:
    """The new library at `target`; its size."""
    base = decision.base

    def must_hold(beside: Path) -> None:
        with Subject(beside, base.name) as made:
            wanted = [
                [each.code for each in decision.containers.get(number, held)] for number, held in enumerate(base.held)
            ]
            found = [[each.code for each in made.held[number]] for number in made.order]
            if [wanted[number] for number in base.order] != found:
                raise MalformedError(base.name, "the new file does not hold what was planned", hint=_HINT)
            if differs := host.difference(base, made):
                raise MalformedError(base.name, f"the new file's host side is not the base's: {differs}", hint=_HINT)
        loading.must_load(base, beside)

    return rewrite.grow_library(
        base.path, base.buffer, target, decision.contents, must_hold, drop_signature=base.drop_signature
    )
