"""`cuwheel find`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.machine.fleet import Machine
from cuwheel.report.document import Column, Document, Facts, Heading, Paragraph, Row, Table
from cuwheel.support.wording import size
from cuwheel.verdicts import library_sources
from cuwheel.verdicts.choice import CudaError
from cuwheel.verdicts.predict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.delivery.best_candidate import Found
    from cuwheel.delivery.judging import Ruling
    from cuwheel.report.document import Block

_GROUPS = 12  # reasons
_LISTED = 3  # versions of a group
_REASONS = 2
_CONDITIONS = 6


class Candidate(Struct, frozen=True, kw_only=True):
    """A file of an index. `known_from`: a `facts file`, the `cache`, the `wheel`; null where nobody looked into it.

    `reasons`: of what fails, why; of what runs, the code that it takes. `chosen`: the one that is best.
    `torch`: of an extension, the minor releases of torch whose symbols and versions it goes with.
    """

    file: str
    version: str
    url: str
    sha256: str | None
    size: int | None
    kind: Literal["wheel", "source"]
    index: str
    outcome: Outcome
    chosen: bool
    reasons: tuple[str, ...]
    conditions: tuple[str, ...]
    predicted_error: CudaError | None
    known_from: str | None
    torch: tuple[str, ...] | None


class Find(Struct, frozen=True, kw_only=True):
    """Candidates, the best first. `downloaded`: bytes of wheels that had to be read."""

    schema: Literal["cuwheel.find/1"] = "cuwheel.find/1"
    name: str
    machines: tuple[Machine, ...]
    candidates: tuple[Candidate, ...]
    downloaded: int

    @property
    def succeeded(self) -> bool:
        """False where there is none to take."""
        return any(each.chosen for each in self.candidates)


def answer_of(found: Found) -> Find:
    return Find(
        name=found.name,
        machines=found.machines,
        candidates=tuple(_candidate(each, chosen=each is found.chosen) for each in found.rulings),
        downloaded=found.downloaded,
    )


def _candidate(ruling: Ruling, *, chosen: bool) -> Candidate:
    listing = ruling.candidate.listing
    return Candidate(
        file=listing.file,
        version=str(ruling.candidate.version),
        url=listing.url,
        sha256=listing.sha256,
        size=listing.size,
        kind="wheel" if ruling.candidate.wheel else "source",
        index=ruling.candidate.index,
        outcome=ruling.outcome,
        chosen=chosen,
        reasons=ruling.reasons,
        conditions=ruling.conditions,
        predicted_error=ruling.predicted_error,
        known_from=ruling.origin,
        torch=ruling.torch,
    )


def document(answer: Find, *, verbose: bool) -> Document:
    where = ", ".join(_machine(each) for each in answer.machines)
    blocks: list[Block] = [Heading(f"{answer.name} on {where}")]
    chosen = next((each for each in answer.candidates if each.chosen), None)
    if chosen is None:
        blocks.append(Paragraph("  no release runs there"))
    else:
        blocks += _chosen(chosen)
    others = [each for each in answer.candidates if not each.chosen]
    releases = others if verbose else _once_a_release(answer.candidates)
    if releases:
        columns = (Column("release", wrap=False), Column("outcome", wrap=False), Column("why"))
        rows = map(_row, releases) if verbose else _brief(releases)
        blocks += [Heading("The others" if chosen else "Why not"), Table(columns, tuple(rows))]
    if rest := len(others) - len(releases):
        what = "one more file" if rest == 1 else f"{rest} more files"
        blocks.append(Paragraph(f"  and {what} of these releases, which serve this machine no better (--verbose)"))
    if answer.downloaded:
        blocks.append(Paragraph(f"  {size(answer.downloaded)} of wheels were downloaded for this; none is kept"))
    return Document(f"cuwheel find {answer.name}", tuple(blocks))


def _machine(machine: Machine) -> str:
    gpu = machine.gpu or machine.capability or ""
    named = f"{machine.name} ({gpu})" if gpu and gpu.lower() != machine.name.lower() else machine.name
    return f"{named}, driver {machine.driver}" if machine.driver else named


def _chosen(chosen: Candidate) -> Iterator[Block]:
    rows = [
        Row("take", chosen.version, origin=chosen.file),
        Row("outcome", chosen.outcome, origin="; ".join(chosen.reasons[:_REASONS])),
        Row("from", chosen.url),
    ]
    rows += [Row("size", size(chosen.size))] if chosen.size else []
    rows += [Row("torch", _torch(chosen.torch))] if chosen.torch is not None else []
    rows += [Row("only if", "\n".join(chosen.conditions[:_CONDITIONS]))] if chosen.conditions else []
    yield Facts(tuple(rows))


def _torch(releases: Sequence[str]) -> str:
    return (
        library_sources.torch_releases_in_words(releases) or "none of the releases that are known has all that it takes"
    )


def _once_a_release(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of each release but the chosen one the best file that was looked into, else the best: most others are for other
    systems and Pythons.
    """
    best: dict[str, Candidate] = {}
    for each in candidates:
        known = best.setdefault(each.version, each)
        if each.known_from and not known.known_from and not known.chosen:
            best[each.version] = each
    return [each for each in best.values() if not each.chosen]


def _row(each: Candidate) -> tuple[str, ...]:
    torch = [f"torch: {_torch(each.torch)}"] if each.torch is not None else []
    return each.file, _outcome(each), "\n".join([*each.reasons, *torch])


def _outcome(each: Candidate) -> str:
    return f"{each.outcome} {each.predicted_error.code}" if each.predicted_error else each.outcome


def _brief(others: Sequence[Candidate]) -> Iterator[tuple[str, ...]]:
    """Fifty releases on a screen: those that share outcome and reason in one line."""
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for each in others:
        reason = "; ".join(each.reasons[:_REASONS])
        groups.setdefault((_outcome(each), reason), []).append(each)
    shown = list(groups.items())
    for (outcome, reason), alike in shown[:_GROUPS]:
        yield _releases(alike), outcome, reason
    if rest := [each for _, alike in shown[_GROUPS:] for each in alike]:
        yield _releases(rest), "", "for other reasons: --verbose has them all"


def _releases(alike: Sequence[Candidate]) -> str:
    versions = list(dict.fromkeys(each.version for each in alike))
    if len(versions) <= _LISTED:
        return ", ".join(versions)
    return f"{versions[0]} … {versions[-1]} ({len(versions)})"
