"""`cuwheel lab trials bisect`: the first version or commit that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph
from cuwheel.report.tables import short, table
from cuwheel_core.support import wording
from cuwheel_core.support.wording import a_few

if TYPE_CHECKING:
    from cuwheel_lab.measuring.bisection import Bisection


def document(answer: Bisection, *, verbose: bool) -> Document:
    return Document(f"cuwheel lab trials bisect {answer.what}", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Bisection, *, verbose: bool) -> Iterator[Block]:
    if answer.first_bad is None:
        yield Heading(f"{answer.what}: no answer: {answer.problem}")
    else:
        first, before = answer.first_bad, answer.last_good or ""
        yield Heading(f"{answer.what}: {first} is the first that fails; {before} is the last that does not")
    rows = (
        (each.name[: None if verbose else 40], f"{each.failures} of {each.runs}", each.side) for each in answer.decided
    )
    yield table(map(short, ("candidate", "failed", "decided")), rows)
    foretold = f", about {answer.foretold} were foretold once the rate was known" if answer.foretold else ""
    yield Paragraph(f"{answer.runs} runs{foretold}.")
    if answer.rates:
        yield Paragraph(
            f"Wrong with a chance of at most {wording.percent(answer.error)}, if one of these {len(answer.candidates)} "
            f"brought the fault: a good one fails in at most {wording.percent(answer.rates.good)} of its runs, a bad "
            f"one in at least {wording.percent(answer.rates.bad)}."
        )
    if verbose:
        yield Paragraph(f"Candidates: {a_few(answer.candidates, 50)}. Journal: {answer.folder}")
