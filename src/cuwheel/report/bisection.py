"""`cuwheel trials bisect`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.proving.measuring.sequential import Rates, Side
from cuwheel.report.document import Column, Document, Heading, Paragraph, Table
from cuwheel.support.wording import a_few

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.proving.measuring.bisection import Bisected, Span
    from cuwheel.report.document import Block


class Candidate(Struct, frozen=True, kw_only=True):
    """A version or commit that was decided, and by how many runs."""

    name: str
    side: Side
    runs: int
    failures: int


class Bisection(Struct, frozen=True, kw_only=True):
    """`first_bad`: the first that has the fault; None where there is no answer, and `problem` says why.

    `error`: the chance that it is wrong, foretold. `rates`: of what counts as good and as bad.
    """

    schema: Literal["cuwheel.bisection/1"] = "cuwheel.bisection/1"
    what: str
    good: str
    bad: str
    candidates: tuple[str, ...]
    decided: tuple[Candidate, ...]
    last_good: str | None
    first_bad: str | None
    runs: int
    foretold: int | None
    error: float
    rates: Rates | None
    problem: str
    folder: str

    @property
    def succeeded(self) -> bool:
        return self.first_bad is not None


def answer_of(made: Bisected, span: Span, folder: Path) -> Bisection:
    found, names = made.found, made.names
    first = found.first_bad
    return Bisection(
        what=span.package or str(span.source),
        good=span.good,
        bad=span.bad,
        candidates=names,
        decided=tuple(
            Candidate(name=names[each.candidate], side=each.side, runs=each.runs, failures=each.failures)
            for each in found.decisions
        ),
        last_good=names[first - 1] if first else None,
        first_bad=names[first] if first is not None else None,
        runs=found.runs,
        foretold=found.foretold,
        error=found.error,
        rates=found.rates,
        problem=found.problem,
        folder=str(folder),
    )


def document(answer: Bisection, *, verbose: bool) -> Document:
    return Document(f"cuwheel trials bisect {answer.what}", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Bisection, *, verbose: bool) -> Iterator[Block]:
    if answer.first_bad is None:
        yield Heading(f"{answer.what}: no answer: {answer.problem}")
    else:
        short, before = answer.first_bad, answer.last_good or ""
        yield Heading(f"{answer.what}: {short} is the first that fails; {before} is the last that does not")
    columns = (Column("candidate", wrap=False), Column("failed", wrap=False), Column("decided", wrap=False))
    rows = (
        (each.name[: None if verbose else 40], f"{each.failures} of {each.runs}", each.side) for each in answer.decided
    )
    yield Table(columns, tuple(rows))
    foretold = f", about {answer.foretold} were foretold once the rate was known" if answer.foretold else ""
    yield Paragraph(f"{answer.runs} runs{foretold}.")
    if answer.rates:
        yield Paragraph(
            f"Wrong with a chance of at most {answer.error:.0%}, if one of these {len(answer.candidates)} brought the "
            f"fault: a good one fails in at most {answer.rates.good:.0%} of its runs, a bad one in at least "
            f"{answer.rates.bad:.0%}."
        )
    if verbose:
        yield Paragraph(f"Candidates: {a_few(answer.candidates, 50)}. Journal: {answer.folder}")
