"""From a log to causes, best first: find signatures, weigh them with the facts, set consequences aside, say what to do.

A cause's confidence is that of its signatures together: each leaves a doubt, and the doubts multiply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.diagnosis import advice, commands, ways_out
from cuwheel.diagnosis import known as known_
from cuwheel.diagnosis.causes import ANY_CAUSE, knowledge
from cuwheel.diagnosis.conditions import CONDITIONS
from cuwheel.diagnosis.diagnosis import Cause, Diagnosis, Evidence
from cuwheel.diagnosis.rows import CauseFile
from cuwheel.diagnosis.search import Hit, Search

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.diagnosis.causes import Knowledge
    from cuwheel.diagnosis.known import Known
    from cuwheel.diagnosis.text import Log
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.verdicts.verdict import Verdict

_CONSEQUENCE = 0.4  # what is left of the confidence in a cause that another one explains
_EXPLAINS = 0.35  # how sure of a cause one must be for it to explain another
_SHOWN = 0.2  # causes below are not told
_CERTAIN = 0.99
_EVIDENCE = 4
_FIXES = 4


class _Found(Struct, frozen=True, kw_only=True):
    id: str
    file: CauseFile
    hits: tuple[Hit, ...]
    confidence: float


def explain(
    log: Log,
    profile: MachineProfile | None = None,
    facts: Mapping[str, str] | None = None,
    verdicts: Sequence[Verdict] = (),
    using: Knowledge | None = None,
    *,
    building: bool = False,
) -> Diagnosis:
    """`facts`: facts from elsewhere, by name. `verdicts`: what `check` says of a wheel that is at hand.

    `building`: it failed inside of `cuwheel build`, whose options then help.
    """
    using = using or knowledge()
    search = Search(log)
    inner = {reading.name for reading in using.readings.reading if reading.inner}
    known = known_.gather(search, using.readings, profile, {**_predicted(verdicts), **(facts or {})}, building=building)
    found = [_weighed(each, known.with_versions(_held(each))) for each in _found(search, using, known)]
    found = [each for each in found if not _ruled_out(each, known.with_versions(_held(each)))]
    ranked = sorted(_settled(found), key=_rank)
    causes = tuple(_cause(each, search, known) for each in ranked if each.confidence >= _SHOWN)
    return Diagnosis(
        causes=causes,
        ways_out=ways_out.rank([using.causes[each.id] for each in causes[:1]], using.ways, known, verdicts),
        versions=tuple(each for each in known.versions if each.name not in inner),
        situations=tuple(sorted(known.situations)),
        tried=commands.commands(log),
        command=commands.failing(log, causes[0].evidence[0].line) if causes else None,
    )


def _predicted(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """The error that `check` foresees is a fact like others."""
    errors = [each.predicted_error for each in verdicts if each.predicted_error]
    return {"predicted_error": str(errors[0].code)} if errors else {}


def _rank(found: _Found) -> tuple[float, int]:
    """The surest first; of equals the one that shows itself first."""
    return -found.confidence, min(hit.line for hit in found.hits)


def _held(found: _Found) -> dict[str, str]:
    return {name: value for hit in reversed(found.hits) for name, value in hit.held.items()}


def _found(search: Search, using: Knowledge, known: Known) -> Iterator[_Found]:
    for id_, file in using.causes.items():
        hits: list[Hit] = []
        doubt = 1.0
        for signature in file.signature:
            own = [hit for text in signature.texts for hit in search.hits(text)]
            if not own or not all(map(search.has, signature.needs)) or any(map(search.has, signature.unless)):
                continue
            if not all(CONDITIONS[name](known) for name in signature.holds):
                continue
            hits += own
            doubt *= 1 - signature.weight
        if hits:
            yield _Found(id=id_, file=file, hits=tuple(hits), confidence=1 - doubt)


def _weighed(found: _Found, known: Known) -> _Found:
    changes = (fact.change for fact in found.file.fact if CONDITIONS[fact.when](known))
    return replace(found, confidence=min(_CERTAIN, max(0.0, found.confidence + sum(changes))))


def _ruled_out(found: _Found, known: Known) -> bool:
    return any(CONDITIONS[name](known) for name in found.file.ruled_out_by)


def _settled(found: Sequence[_Found]) -> Iterator[_Found]:
    """A first error that caused fifty others is one cause."""
    sure = {each.id for each in found if each.confidence >= _EXPLAINS}
    for each in found:
        others = sure - {each.id}
        explained = others if ANY_CAUSE in each.file.explained_by else others.intersection(each.file.explained_by)
        yield replace(each, confidence=each.confidence * _CONSEQUENCE) if explained else each


def _cause(found: _Found, search: Search, known: Known) -> Cause:
    known = known.with_versions(_held(found))
    return Cause(
        id=found.id,
        confidence=round(found.confidence, 2),
        title=found.file.title,
        evidence=tuple(_evidence(found.hits, search.log)),
        fix=tuple(advice.fixes(found.file.fix, known.filled(), known, search))[:_FIXES],
    )


def _evidence(hits: tuple[Hit, ...], log: Log) -> Iterator[Evidence]:
    lines = {log.numbers[hit.line]: log.shown(hit.line) for hit in sorted(hits, key=lambda hit: -hit.line)}
    for number in sorted(lines)[:_EVIDENCE]:
        yield Evidence(line=number, text=lines[number])
