"""`slim --compile`: machine code is made of PTX where the driver would have to, and then the library is cut.

What is made, by which ptxas and what must hold of it is `graft --compile`'s (`changes/graft/compiled.py`). A library
that grew is read again and decided anew, by what is in it: PTX that ptxas refused stays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.graft.answer import GRAFT_NOTE, CompiledCode, Giver, GraftedLibrary, note_of_distribution
from cuwheel.changes.slim.decide import decide_library
from cuwheel.support import system_calls

if TYPE_CHECKING:
    from cuwheel.changes.binaries.plan import LibraryPlan
    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.graft import compiled
    from cuwheel.changes.slim.answer import SlimPlan
    from cuwheel.changes.slim.request import SlimTask
    from cuwheel_core.support.finding import Finding


class Ahead:
    """The machine code that libraries get before they are cut: none without `--compile`."""

    def __init__(self, task: SlimTask, made: compiled.Making | None) -> None:
        self._task, self.made = task, made
        self._decisions = {each.base.name: each for each in made.decisions} if made else {}
        self._grown: list[GraftedLibrary] = []

    @property
    def rows(self) -> tuple[CompiledCode, ...]:
        return self.made.rows if self.made else ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What compiling met that the plan had not told."""
        return self.made.findings[len(self.made.plan.untouched) :] if self.made else ()

    def slim_library(self, source: Path, target: Path, plan: LibraryPlan, grown: Path) -> Rewritten:
        """Slims a library as `rewrite.slim_library` does.

        `grown`: a place for the library that has both, which is not left there.
        """
        if self.made is None or not plan.made:
            return rewrite.slim_library(source, target, plan)
        from cuwheel.changes.graft import compiled, writing  # noqa: PLC0415 - few compile

        decision = self._decisions.get(plan.path)
        if decision:
            row = decision.library(writing.write_library(decision, grown, self.made.must_reach))
            self._grown.append(row)
            source = grown
        library = replace(compiled.surveyed(source), path=plan.path)
        result = rewrite.slim_library(source, target, decide_library(library, self._task))
        change = replace(result.change, bytes_before=plan.bytes_before, added=row.added if decision else ())
        if decision and not result.written:  # nothing to cut
            system_calls.rename_over(grown, target)
            change = replace(change, fate="slimmed", bytes_after=library.size)
        grown.unlink(missing_ok=True)
        return result._replace(change=change)

    def note(self, before: bytes | None, names: Mapping[str, str], base: Giver | None = None) -> dict[str, bytes]:
        """`graft`'s note of a distribution that got machine code. `names`: of its libraries, as its RECORD has them."""
        if not any(each.library in names for each in self.rows):
            return {}
        return {GRAFT_NOTE: note_of_distribution(before, names, self._grown, self.rows, base)}


@contextmanager
def compiled_first(plan: SlimPlan, place_of: Callable[[str], Path]) -> Iterator[Ahead]:
    """Everything compiled. `place_of`: where a library can be read."""
    if plan.ahead is None or not plan.ahead.wanted:
        yield Ahead(plan.task, None)
        return
    from cuwheel.changes.graft import compiled  # noqa: PLC0415 - few compile

    with (
        tempfile.TemporaryDirectory(prefix="cuwheel-slim-") as scratch,
        compiled.machine_code(plan.ahead, place_of, Path(scratch)) as made,
    ):
        yield Ahead(plan.task, made)
