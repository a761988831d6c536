"""Why something failed, as `explain` and others report it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel_core.support.finding import Fix


class Evidence(Struct, frozen=True, kw_only=True):
    """A line of the log, without colours, times and CI prefixes; `line` counts from 1."""

    line: int
    text: str


class Cause(Struct, frozen=True, kw_only=True):
    """`id`: stable, the name of its page in docs/reference/causes. `fixes`: the most specific first.

    `fix` is made from them: the words of each.

    `follows`: the cause of which this one is a consequence, where that was found too. `when`: of one that it may be
    instead of the first, what shows that.
    """

    id: str
    confidence: float
    title: str
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...] = ()
    fix: tuple[str, ...] = ()
    follows: str = ""
    when: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "fix", tuple(each.words for each in self.fixes))
