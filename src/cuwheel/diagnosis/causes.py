"""The causes, read from `causes/*.toml` and checked: one file each, named by the cause's id."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from cuwheel.diagnosis.events import names
from cuwheel.diagnosis.known import ALWAYS
from cuwheel.diagnosis.pattern import PatternError, check_pattern, fold
from cuwheel.diagnosis.rows import CauseFile, FixRow, Readings, Shared, Ways, placeholders
from cuwheel.support import codec
from cuwheel.support.finding import find_rule
from cuwheel_core.errors import FactsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cuwheel.diagnosis.rows import Way

FOLDER = Path(__file__).with_name("causes")
_READINGS = "readings.toml"
_WAYS = "ways_out.toml"
_LISTS = "lists.toml"
ANY_CAUSE = "*"  # in `explained_by`: whatever else is found

T = TypeVar("T")


class Knowledge(Struct, frozen=True, kw_only=True):
    """Everything that explaining goes by, causes by their id."""

    causes: dict[str, CauseFile]
    readings: Readings
    ways: Ways


@cache
def knowledge() -> Knowledge:
    """Reads the causes and lists of this installation."""
    shared = codec.own_table(FOLDER.with_name(_LISTS), Shared)
    return Knowledge(
        causes={
            path.stem: codec.own_table(path, CauseFile).spelled_out(shared) for path in sorted(FOLDER.glob("*.toml"))
        },
        readings=codec.own_table(FOLDER.with_name(_READINGS), Readings),
        ways=codec.own_table(FOLDER.with_name(_WAYS), Ways),
    )


def ways_out(*ids: str) -> tuple[Way, ...]:
    """These ways, in this order, without reading any cause."""
    rows = {each.id: each for each in codec.own_table(FOLDER.with_name(_WAYS), Ways).way}
    return tuple(rows[each] for each in ids)


def load(folder: Path, facts: frozenset[str], names: frozenset[str]) -> Knowledge:
    """All files, checked; raises FactsError with every problem of every file.

    `facts`: the names that a cause's `fact.when` may use. `names`: those that a fix may have in braces.
    """
    problems: list[str] = []
    readings = _checked(folder.with_name(_READINGS), Readings, problems)
    ways = _checked(folder.with_name(_WAYS), Ways, problems)
    found = {path.stem: _checked(path, CauseFile, problems) for path in sorted(folder.glob("*.toml"))}
    shared = _checked(folder.with_name(_LISTS), Shared, problems) or Shared(lists={})
    causes = {id_: file.spelled_out(shared) for id_, file in found.items() if file is not None}
    for reading in readings.reading if readings else ():
        problems += (f"{_READINGS}: {reading.name}: {each}" for each in _pattern_problems(reading.any))
    known = _Names(
        causes=frozenset(found),
        silent=frozenset(id_ for id_, file in causes.items() if not file.when),
        ways=frozenset(way.id for way in ways.way) if ways else frozenset(),
        facts=facts,
        fillable=names | _held(causes.values()),
    )
    for id_, file in causes.items():
        problems += (f"{id_}.toml: {each}" for each in _problems(file, known))
    for way in ways.way if ways else ():
        problems += (f"{_WAYS}: {way.id}: {each}" for each in _text_problems(way, known))
    if problems or readings is None or ways is None:
        raise FactsError(problems)
    return Knowledge(causes=causes, readings=readings, ways=ways)


class _Names(Struct, frozen=True, kw_only=True):
    causes: frozenset[str]
    silent: frozenset[str]  # those without `when`
    ways: frozenset[str]
    facts: frozenset[str]
    fillable: frozenset[str]


def _checked(path: Path, type_: type[T], problems: list[str]) -> T | None:
    data = codec.checked_table(path, problems)
    return None if data is None else codec.convert_or_list_problems(data, type_, path.name, problems)


def _problems(file: CauseFile, known: _Names) -> Iterator[str]:
    for check in _CHECKS:
        yield from check(file, known)


def _signature_problems(file: CauseFile, _known: _Names) -> Iterator[str]:
    if not file.signature:
        yield "has no signature"
    for signature in file.signature:
        yield from _pattern_problems((*signature.texts, *signature.needs, *signature.unless))
        if not signature.texts and not (signature.facts and signature.holds):
            yield "has a signature without texts, or without what follows from its facts"
        twice = Counter(map(fold, signature.any))
        yield from (f"has {text!r} {count} times in a signature" for text, count in twice.items() if count > 1)
        yield from (f"names a speaker that is not known: {name!r}" for name in signature.by if name not in names())
        if not 0 < signature.weight < 1:
            yield f"weight {signature.weight} of {signature.texts[:1]} is not between 0 and 1"
    for fix in file.fix:
        yield from _pattern_problems(fix.shown)


def _pattern_problems(patterns: tuple[str, ...]) -> Iterator[str]:
    for text in patterns:
        if "<@" in text or text.startswith("@"):
            yield f"{text!r} names a list that is not there"
        try:
            check_pattern(text)
        except PatternError as error:
            yield f"pattern {text!r} {error}"


def _reference_problems(file: CauseFile, known: _Names) -> Iterator[str]:
    beside = [other for example in file.example for other in example.also]
    others = [each for each in (*file.explained_by, *beside) if each not in (ANY_CAUSE, *known.causes)]
    others += [each for each in file.instead if each not in known.causes]
    yield from (f"refers to an unknown cause {other!r}" for other in others)
    yield from (f"refers to an unknown way out {other!r}" for other in file.ways_out if other not in known.ways)
    yield from (f"refers to an unknown rule {rule!r}" for rule in file.rules if not is_rule(rule))
    facts = [*(fact.when for fact in file.fact), *file.ruled_out_by]
    facts += [name for row in file.signature for name in row.holds]
    facts += [name for fix in file.fix for name in fix.holds]
    yield from (f"refers to an unknown fact {name!r}" for name in facts if name not in known.facts)


def _instead_problems(file: CauseFile, known: _Names) -> Iterator[str]:
    yield from (f"may be {id_!r} instead, which does not say when" for id_ in file.instead if id_ in known.silent)
    yield from (f"may be {id_!r} instead twice" for id_, count in Counter(file.instead).items() if count > 1)


def _fix_problems(file: CauseFile, known: _Names) -> Iterator[str]:
    if not any(fix.fills <= ALWAYS and not fix.when for fix in file.fix):
        yield "has no fix that holds whatever is known"
    for fix in file.fix:
        yield from _text_problems(fix, known)


def _text_problems(row: FixRow | Way, known: _Names) -> Iterator[str]:
    if not row.source:
        yield f"{row.text[:40]!r} has no source"
    try:
        unknown = (row.fills if isinstance(row, FixRow) else placeholders(row.text)) - known.fillable
    except ValueError as error:
        yield f"{row.text[:40]!r}: {error}"
    else:
        yield from (f"{row.text[:40]!r} asks for {name!r}, which nothing fills" for name in sorted(unknown))


def _text_of_file_problems(file: CauseFile, _known: _Names) -> Iterator[str]:
    if not file.source:
        yield "has no source"
    if not file.example:
        yield "has no example"


_CHECKS: tuple[Callable[[CauseFile, _Names], Iterator[str]], ...] = (
    _signature_problems,
    _reference_problems,
    _instead_problems,
    _fix_problems,
    _text_of_file_problems,
)


def is_rule(name: str) -> bool:
    try:
        return bool(find_rule(name))
    except KeyError:
        return False


def _held(files: Iterable[CauseFile]) -> frozenset[str]:
    """The names under which patterns keep what their holes hold."""
    held: set[str] = set()
    for file in files:
        for text in (text for signature in file.signature for text in signature.texts):
            try:
                held.update(name for part in check_pattern(text).parts for name in part.groupindex)
            except PatternError:
                continue
    return frozenset(held)
