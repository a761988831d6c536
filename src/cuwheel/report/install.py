"""`cuwheel install`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.delivery.environment_changes import Change
from cuwheel.diagnose.diagnosis import Cause
from cuwheel.finding import Finding
from cuwheel.machine.fleet import Machine
from cuwheel.report import find
from cuwheel.report.document import Column, Document, Facts, Findings, Heading, Paragraph, Row, Table
from cuwheel.report.find import Candidate
from cuwheel.verifying.outcomes import Result

if TYPE_CHECKING:
    from cuwheel.delivery.installing import Installed
    from cuwheel.report.document import Block

_CAUSES = 3
_FIXES = 2


class Install(Struct, frozen=True, kw_only=True):
    """`changes`: what changes in the environment, or with `dry_run` would. `refused`: those that `--allow` must name.

    `rolled_back`: the environment is as it was before, because of `problem`. `written`: it was changed. `undone`: the
    last install was put back. `pins`, `fallback`: nothing
    is pinned and nothing taken instead yet, so they are empty.
    """

    schema: Literal["cuwheel.install/1"] = "cuwheel.install/1"
    name: str
    env: str
    machines: tuple[Machine, ...]
    candidates: tuple[Candidate, ...]
    changes: tuple[Change, ...]
    refused: tuple[Change, ...]
    pins: dict[str, str]
    fallback: str | None
    dry_run: bool
    written: bool
    rolled_back: bool
    undone: bool
    recovered: str
    problem: str
    checks: tuple[Result, ...]
    causes: tuple[Cause, ...]
    findings: tuple[Finding, ...]

    @property
    def succeeded(self) -> bool:
        """False where nothing runs, a change was refused, or the environment was put back."""
        if self.undone:
            return True
        return any(each.chosen for each in self.candidates) and not self.refused and not self.rolled_back


def answer_of(done: Installed, *, dry_run: bool = False) -> Install:
    found = find.answer_of(done.found) if done.found else None
    return Install(
        name=done.name,
        env=done.prefix,
        machines=found.machines if found else (),
        candidates=found.candidates if found else (),
        changes=done.changes,
        refused=done.refused,
        pins={},
        fallback=None,
        dry_run=dry_run,
        written=done.written,
        rolled_back=done.rolled_back,
        undone=done.undone,
        recovered=done.recovered,
        problem=done.problem,
        checks=done.checks,
        causes=done.causes,
        findings=done.findings,
    )


def document(answer: Install, *, verbose: bool) -> Document:
    title = f"cuwheel install {answer.name}"
    blocks: list[Block] = [Heading(f"{answer.name} in {answer.env}")]
    chosen = next((each for each in answer.candidates if each.chosen), None)
    if answer.recovered:
        blocks.append(Paragraph(f"  an install of {answer.recovered} had not ended: put back as it was"))
    if not answer.undone and chosen is None:
        none = find.Find(name=answer.name, machines=answer.machines, candidates=answer.candidates, downloaded=0)
        return Document(title, (*blocks, *find.document(none, verbose=verbose).blocks))
    if chosen:
        takes = "; ".join(chosen.reasons[:_FIXES])
        blocks.append(Facts((Row("take", chosen.version, origin=chosen.file), Row("outcome", chosen.outcome, takes))))
    blocks += _changes(answer)
    blocks.append(Paragraph(f"  {_outcome(answer)}"))
    if answer.problem:
        blocks += [Heading("Why"), Paragraph(f"  {answer.problem}")]
        blocks += [_cause(each) for each in answer.causes[:_CAUSES]]
    if answer.findings:
        blocks += [Heading("Beside that"), Findings(answer.findings)]
    return Document(title, tuple(blocks))


def _changes(answer: Install) -> list[Block]:
    if not answer.changes:
        return []
    columns = (Column("package"), Column("from", wrap=False), Column("to", wrap=False), Column(""))
    refused = {each.name for each in answer.refused}
    rows = (
        (each.name, each.from_ or "-", each.to or "-", f"refused: --allow {each.name}" if each.name in refused else "")
        for each in answer.changes
    )
    return [Heading("Changes"), Table(columns, tuple(rows))]


def _outcome(answer: Install) -> str:
    if answer.undone:
        return "the environment is as it was before"
    if answer.rolled_back:
        return "it failed: the environment was put back as it was"
    if answer.refused:
        return "nothing was changed: an installed package would be replaced"
    if answer.dry_run:
        return "nothing was changed: --dry-run" if answer.changes else "nothing to change: it is installed"
    if not answer.written:
        return "nothing to change: it is installed"
    tried = ", ".join(f"{each.name} {each.outcome}" for each in answer.checks)
    return f"installed; {tried or 'it has no module to import'}   (to put it back: cuwheel install --undo)"


def _cause(cause: Cause) -> Facts:
    rows = [Row("cause", cause.title, origin=f"{cause.id}, confidence {cause.confidence:.2f}")]
    rows += [Row("fix", each) for each in cause.fix[:_FIXES]]
    return Facts(tuple(rows))
