"""Whether two AArch64 instructions differ just as what they refer to has moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.changes.binaries import arm64
from cuwheel.changes.binaries.arm64 import PAGE

if TYPE_CHECKING:
    from cuwheel.changes.graft.moves import Moves


def explained(ours: int, theirs: int, place: int, moved: int, moves: Moves) -> bool:
    """`place`: where the instruction is in the base; `moved`: how much further it is in the donor."""
    relative = (ours ^ theirs) & ~arm64.RELATIVE_FIELDS == 0
    if relative and arm64.is_page(ours):
        page = place // PAGE * PAGE + arm64.relative(ours) * PAGE
        other = (place + moved) // PAGE * PAGE + arm64.relative(theirs) * PAGE
        nearest = set(moves.near(page, PAGE))
        return any(other in {(page + each) // PAGE * PAGE, (page + PAGE - 1 + each) // PAGE * PAGE} for each in nearest)
    if relative and arm64.is_near(ours):
        return moves.explains(place + arm64.relative(ours), place + moved + arm64.relative(theirs), 16)
    if arm64.is_branch(ours) and (ours ^ theirs) & ~arm64.BRANCH_FIELD == 0:
        return moves.explains(place + arm64.branch(ours), place + moved + arm64.branch(theirs))
    if (ours ^ theirs) & ~arm64.LOW_FIELD:
        return False
    scale = arm64.low_scale(ours)
    if scale is None:
        return False
    step = (((theirs & arm64.LOW_FIELD) - (ours & arm64.LOW_FIELD)) >> 10 << scale) % PAGE
    return any(step == each % PAGE for each in moves.all)
