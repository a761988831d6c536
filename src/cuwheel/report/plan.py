"""`cuwheel plan`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from cuwheel.facts import spellings
from cuwheel.report.document import Block, Document, Heading, Paragraph, hidden
from cuwheel.report.tables import Amount, Facts, Row, Table, figure, table
from cuwheel_core.support import printable
from cuwheel_core.support.wording import a_few, percent_change, size

if TYPE_CHECKING:
    from cuwheel.facts.spellings.row import Spelling
    from cuwheel.verdicts.planning.plan import Job, NotServed, OnMachine, Plan, Reading, Served

_NAMED = 4
_SHOWN = 20


def document(answer: Plan, *, verbose: bool) -> Document:
    if answer.reading:
        return Document("cuwheel plan", tuple(_reading(answer.reading)))
    blocks: list[Block] = []
    for job in answer.jobs:
        blocks += _job(job, answer, verbose=verbose)
    if answer.unserved:
        blocks.append(Heading(f"Not served: {_number(answer.unserved)}"))
        blocks += _not_served(answer.unserved, verbose=verbose)
    return Document("cuwheel plan", tuple(blocks))


def _job(job: Job, answer: Plan, *, verbose: bool) -> Iterator[Block]:
    several = len({each.platform for each in answer.jobs}) > 1
    place = f", {str(job.platform) or 'platform not given'}" if several else ""
    yield Heading(f"CUDA {job.cuda}{place}: {' '.join((*job.archs, *job.ptx)) or 'nothing to build'}")
    yield Paragraph(job.reach[:1].upper() + job.reach[1:] + ".")
    if job.coverage:
        yield _coverage(job.coverage, verbose=verbose)
        yield from _provisos(job.coverage)
    spelt = [getattr(job.spellings, name) for name in spellings.NAMES]
    if job.archs or job.ptx:
        yield Paragraph("The same list in the spelling of each build system:")
        yield Facts(tuple(_flag(flag) for flag in spelt))
    if job.size:
        change = percent_change(job.size.like_bytes, job.size.bytes)
        predicted_size = f"{size(job.size.bytes)}, {change} against {size(job.size.like_bytes)}"
        yield Facts((Row("predicted size", predicted_size, origin=f"estimated: {job.size.method}"),))
    for note in job.notes:
        yield Paragraph(f"note: {note}")
    nowhere = {each.machine for each in answer.unserved}
    in_other_jobs = [each for each in job.left_out if each.machine not in nowhere]
    if in_other_jobs:
        yield Paragraph("Left to another job:")
        yield from _not_served(in_other_jobs, verbose=verbose, fixes=False)


def _coverage(rows: Sequence[Served], *, verbose: bool) -> Table:
    """Machines that are served alike are one row."""
    alike: dict[tuple[str, str, str], list[Served]] = {}
    for row in rows:
        alike.setdefault((row.capability, row.how, row.by), []).append(row)
    return table(
        ("machines", figure("number"), "GPU", "how", "by"),
        (
            (_names([each.machine for each in found], verbose=verbose), _count(found), capability, how, by)
            for (capability, how, by), found in alike.items()
        ),
    )


def _count(rows: Sequence[Served]) -> Amount:
    number = sum(each.count for each in rows)
    return Amount(f"{number:,}", number)


def _provisos(rows: Sequence[Served | OnMachine]) -> Iterator[Block]:
    for _, alike in groupby(proviso_rows(rows), key=lambda row: row.name):
        yield Facts(tuple(alike))


def proviso_rows(rows: Sequence[Served | OnMachine]) -> Iterator[Row]:
    """Each condition and each note once, with the machines that it is about."""
    for word, chosen in (("if", "conditions"), ("note", "notes")):
        about: dict[str, list[str]] = {}
        for row in rows:
            for text in getattr(row, chosen):
                about.setdefault(text, []).append(row.machine)
        for text, names in about.items():
            only = [] if len(names) == len(rows) else [f"({_names(names, verbose=False)})"]
            yield Row(word, printable.Lines((text, *only)))


def _flag(flag: Spelling) -> Row:
    if flag.value is not None:
        return Row(flag.variable, flag.value, origin=f"needs {flag.needs}" if flag.needs else "")
    near = f"nearest: {flag.nearest}" if flag.nearest else "nothing is close"
    return Row(flag.variable, near, origin=f"not exactly this list: {flag.reason}")


def _not_served(rows: Iterable[NotServed], *, verbose: bool, fixes: bool = True) -> Iterator[Block]:
    alike: dict[tuple[str | None, tuple[str, ...], str], list[NotServed]] = {}
    for row in rows:
        alike.setdefault((row.capability, row.why, row.fix if fixes else ""), []).append(row)
    found = list(alike.items())
    yield Facts(
        tuple(
            Row(
                capability or "?",
                printable.Lines([_names([each.machine for each in group], verbose=verbose), *why]),
                origin=f"fix: {fix}" if fix else "",
            )
            for (capability, why, fix), group in (found if verbose else found[:_SHOWN])
        )
    )
    if not verbose and len(found) > _SHOWN:
        yield hidden(len(found) - _SHOWN, "kinds of machine")


def _names(names: Sequence[str], *, verbose: bool) -> str:
    distinct = list(dict.fromkeys(names))
    everything = verbose or len(distinct) <= _NAMED + 1
    return a_few(distinct, len(distinct) if everything else _NAMED)


def _number(rows: Sequence[NotServed]) -> str:
    number = sum(each.count for each in rows)
    return "one machine" if number == 1 else f"{number:,} machines"


def _reading(reading: Reading) -> Iterator[Block]:
    whose = f"{'looks like' if reading.guessed else 'read as'} {reading.spelling}'s"
    yield Heading(f"{reading.text}  ({whose})")
    yield table(("word", "asks for"), ((word.word, word.meaning) for word in reading.words))
    yield Paragraph(f"It {reading.reach}.")
    facts = [Row("not served", reading.missed)] if reading.missed and not reading.open else []
    facts += [Row("compiled by", reading.toolkits)] if reading.toolkits else []
    yield Facts((*facts, *(Row("note", note) for note in reading.notes)))
    for row in reading.machines:
        number = f" × {row.count}" if row.count > 1 else ""
        outcome = f"{row.how}, by {row.by}" if row.by else "not served"
        yield Heading(f"{row.machine}{number}: {outcome}")
        yield Paragraph(row.explanation[:1].upper() + row.explanation[1:] + ".")
        yield from _provisos([row])
