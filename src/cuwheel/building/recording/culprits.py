"""Which difference makes the difference, between a call that works and one that does not: and what to do about it.

Delta debugging, after A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002): the
smallest set of changes, none of which can be left out, that makes the one behave as the other. What is likeliest is
tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import differences
from cuwheel.building.recording.differences import Hunk, Situation, weight
from cuwheel.building.recording.options import WRITTEN, parse_options
from cuwheel.support import log, masking

T = TypeVar("T")

_TRIES = 5  # of one situation, to tell how often it works where it does not always do the same
_TWICE = 2
_FEWEST = 8  # both ends twice, the answer, and to be sure of it

Kind: TypeAlias = Literal["variable", "element", "argument", "directory", "program"]
# `found`: `changes` is the smallest set that makes the difference. `unfinished`: it does, and may not be the smallest.
# `same`: both do the same. `flaky`: one alone does not always do the same. `elsewhere`: they differ in what cuwheel
# cannot carry over (a masked secret).
Verdict: TypeAlias = Literal["found", "unfinished", "same", "flaky", "elsewhere"]


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended: `status`, None where it ran out of time; `error`: the first; `sign`: that without paths."""

    status: int | None
    error: str = ""
    sign: str = ""
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        return self.status == 0


class Change(Struct, frozen=True):
    """One thing to carry over. `name`: of the variable or option; `hunk`: of its elements, or of the words."""

    kind: Kind
    name: str = ""
    hunk: Hunk | None = None


class Culprits(Struct, frozen=True, kw_only=True):
    """`left`, `right`: how they ended. `from_`: the side that does not work (or the left); `changes` mend it.

    `rates`: where a side is flaky, how many of its runs worked, of how many.
    """

    verdict: Verdict
    left: Outcome
    right: Outcome
    from_: Literal["left", "right"] = "left"
    changes: tuple[Change, ...] = ()
    runs: int = 0
    rates: tuple[tuple[int, int], tuple[int, int]] | None = None


class _EnoughError(Exception):
    """No more runs are allowed."""


def find_culprits(
    left: Situation,
    right: Situation,
    run: Callable[[Situation], Outcome],
    *,
    most: int = 60,
    recorded: bool | None = None,
) -> Culprits:
    """`run` runs a situation; at most `most` times, and each one once but for what is run again to be sure of it.

    `recorded`: whether the left one worked before. If it does the same again, that is steady enough to begin with.
    """
    with log.progress("runs", most) as progress:
        bench = _Bench(run, most, progress)
        first, second = bench.rerun(left), bench.rerun(right)
        # In the other order: what fails every other time must not look steady.
        steady = first.works == recorded != second.works
        if not steady and not (_alike(second, bench.rerun(right)) and _alike(first, bench.rerun(left))):
            return _measure_flaky(left, right, bench, (first, second))
        if _alike(first, second):
            return Culprits(verdict="same", left=first, right=second, runs=bench.runs)
        backwards = first.works  # the right one fails: that is the one to mend
        bad, good, wanted = (right, left, first) if backwards else (left, right, second)
        verdict, changes = _search(bad, good, wanted, bench)
        if verdict == "found" and not _is_repeatable(bad, with_changes(bad, good, changes), wanted, bench):
            return _measure_flaky(left, right, bench, (first, second))
        return Culprits(
            verdict=verdict,
            left=first,
            right=second,
            from_="right" if backwards else "left",
            changes=changes,
            runs=bench.runs,
        )


def _is_repeatable(bad: Situation, mended: Situation, wanted: Outcome, bench: _Bench) -> bool:
    """Once more each: what came about by chance seldom comes twice."""
    sides = [(mended, True), (bad, False), (mended, True)][: bench.remaining]
    return all(_alike(bench.rerun(side), wanted) == expected for side, expected in sides)


def _alike(one: Outcome, other: Outcome) -> bool:
    """Both work, or both fail in the same way."""
    return one.works == other.works and (one.works or (one.status, one.sign) == (other.status, other.sign))


def _measure_flaky(left: Situation, right: Situation, bench: _Bench, ends: tuple[Outcome, Outcome]) -> Culprits:
    rates = []
    for side in (left, right):
        outcomes = bench.seen(side)
        while len(outcomes) < _TRIES and bench.remaining:
            bench.rerun(side)
        rates.append((sum(outcome.works for outcome in outcomes), len(outcomes)))
    return Culprits(verdict="flaky", left=ends[0], right=ends[1], runs=bench.runs, rates=(rates[0], rates[1]))


def _search(bad: Situation, good: Situation, wanted: Outcome, bench: _Bench) -> tuple[Verdict, tuple[Change, ...]]:
    def mends(changes: tuple[Change, ...]) -> bool:
        return _alike(bench.once(with_changes(bad, good, changes)), wanted)

    every = all_changes(bad, good)
    best = [every]  # so far, for when the runs are spent
    try:
        if not mends(every):
            return "elsewhere", ()
        likely = next((group for group in _likeliest(every) if group and mends(group)), every)
        best.append(likely)
        smallest_part(best[-1], mends, best.append)
        finer = tuple(piece for change in best[-1] for piece in _element_changes(bad, good, change))
        if finer != best[-1] and mends(finer):
            best.append(finer)
            smallest_part(finer, mends, best.append)
    except _EnoughError:
        return "unfinished", best[-1]
    return "found", best[-1]


def _likeliest(every: tuple[Change, ...]) -> Iterator[tuple[Change, ...]]:
    """What is known to steer compilers; then all but what belongs to terminals."""
    for unlikely in (("other", "session"), ("session",)):
        chosen = (change for change in every if change.kind != "variable" or weight(change.name) not in unlikely)
        yield tuple(chosen)


def smallest_part(
    items: tuple[T, ...], holds: Callable[[tuple[T, ...]], bool], tell: Callable[[tuple[T, ...]], None]
) -> tuple[T, ...]:
    """The smallest part of `items` (which hold) that still holds; nothing can be left out. Each smaller one is told."""
    parts = 2
    while len(items) > 1:
        ends = [len(items) * index // parts for index in range(parts + 1)]
        pieces = [items[start:stop] for start, stop in pairwise(ends) if stop > start]
        rests = [tuple(item for item in items if item not in piece) for piece in pieces] if parts > _TWICE else []
        found = next((piece for piece in (*pieces, *rests) if holds(piece)), None)
        if found is not None:
            parts = _TWICE if found in pieces else max(parts - 1, _TWICE)
            items = found
            tell(items)
        elif parts < len(items):
            parts = min(len(items), parts * 2)
        else:
            break
    return items


class _Bench:
    """Runs situations, and remembers: a set of changes is tried once."""

    def __init__(self, run: Callable[[Situation], Outcome], most: int, progress: log.Progress) -> None:
        self._run, self._progress, self.remaining, self.runs = run, progress, max(most, _FEWEST), 0
        self._known: dict[tuple[object, ...], list[Outcome]] = {}

    def once(self, situation: Situation) -> Outcome:
        known = self.seen(situation)
        return known[0] if known else self.rerun(situation)

    def rerun(self, situation: Situation) -> Outcome:
        if not self.remaining:
            raise _EnoughError
        self.remaining -= 1
        self.runs += 1
        self.seen(situation).append(self._run(situation))
        self._progress.advance()
        return self.seen(situation)[-1]

    def seen(self, situation: Situation) -> list[Outcome]:
        key = (situation.program, situation.words, situation.cwd, tuple(sorted(situation.environ.items())))
        return self._known.setdefault(key, [])


# Changes


def all_changes(one: Situation, other: Situation) -> tuple[Change, ...]:
    """All that can be carried over from the other, the likeliest first."""
    found: list[Change] = []
    if one.program != other.program:
        found.append(Change("program"))
    ours, theirs = ([option.key for option in differences.without_outputs(side)] for side in (one, other))
    found += [Change("argument", hunk=hunk) for hunk in differences.hunks(ours, theirs)]
    variables = [Change("variable", name) for name in differences.differing_variables(one.environ, other.environ)]
    found += [change for change in variables if weight(change.name) == "steers"]
    if one.cwd != other.cwd:
        found.append(Change("directory"))
    return (*found, *(change for change in variables if weight(change.name) != "steers"))


def _element_changes(one: Situation, other: Situation, change: Change) -> tuple[Change, ...]:
    """A list's elements one by one; anything else as it is."""
    before, after = one.environ.get(change.name), other.environ.get(change.name)
    if change.kind != "variable" or before is None or after is None:
        return (change,)
    separator = differences.list_separator(change.name, before, after)
    if separator is None:
        return (change,)
    pieces = differences.hunks(before.split(separator), after.split(separator), single=True)
    return tuple(Change("element", change.name, piece) for piece in pieces)


def with_changes(one: Situation, other: Situation, changes: Sequence[Change]) -> Situation:
    """`one`, with these things as in the other."""
    environ = dict(one.environ)
    for change in changes:
        if change.kind == "variable":
            environ.pop(change.name, None)
            if change.name in other.environ:
                environ[change.name] = other.environ[change.name]
    for name in dict.fromkeys(change.name for change in changes if change.kind == "element"):
        before, after = one.environ[name], other.environ[name]
        separator = differences.list_separator(name, before, after) or ":"
        chosen = [change.hunk for change in changes if change.kind == "element" and change.name == name and change.hunk]
        environ[name] = separator.join(differences.apply_hunks(before.split(separator), after.split(separator), chosen))
    kinds = {change.kind for change in changes}
    return replace(
        one,
        environ=environ,
        program=other.program if "program" in kinds else one.program,
        cwd=other.cwd if "directory" in kinds else one.cwd,
        words=_changed_words(one, other, changes),
    )


def _changed_words(one: Situation, other: Situation, changes: Sequence[Change]) -> tuple[str, ...]:
    chosen = [change.hunk for change in changes if change.kind == "argument" and change.hunk]
    if not chosen:
        return one.words
    options = differences.apply_hunks(differences.without_outputs(one), differences.without_outputs(other), chosen)
    written = (option for option in parse_options(one.words, one.tool) if option.name in WRITTEN)
    return tuple(word for option in (*options, *written) for word in option.words)


# What was found to make the difference, in words: who is to blame, and what to do.


class Culprit(Struct, frozen=True, kw_only=True):
    """`fails`: as it is where it fails, None where it is not there; `works`: as it must be. `fix`: to do, in words."""

    kind: Kind
    name: str
    fails: str | None
    works: str | None
    origin: str = ""
    fix: str


class Explanation(Struct, frozen=True, kw_only=True):
    """`failing`: the side to mend. `answer`: a sentence. `rates`: how many runs worked, of how many, of each side."""

    verdict: Verdict
    left: Outcome
    right: Outcome
    failing: Literal["left", "right"]
    culprits: tuple[Culprit, ...]
    answer: str
    runs: int
    rates: tuple[tuple[int, int], tuple[int, int]] | None = None


def explain_culprits(found: Culprits, left: Situation, right: Situation, origins: Mapping[str, str]) -> Explanation:
    bad, good = (right, left) if found.from_ == "right" else (left, right)
    culprits = tuple(culprit for change in found.changes for culprit in _culprits(change, bad, good, origins))
    return Explanation(
        verdict=found.verdict,
        left=found.left,
        right=found.right,
        failing=found.from_,
        culprits=culprits,
        answer=_sentence(found, culprits, bad, good),
        runs=found.runs,
        rates=found.rates,
    )


def _culprits(change: Change, bad: Situation, good: Situation, origins: Mapping[str, str]) -> Iterator[Culprit]:
    if change.kind == "variable":
        fails, works = (_masked_value(change.name, side.environ.get(change.name)) for side in (bad, good))
        fix = f"{change.name} unset" if works is None else f"{change.name}={works}"
        origin = origins.get(change.name, "") if fails is not None else ""
        yield Culprit(kind="variable", name=change.name, fails=fails, works=works, origin=origin, fix=fix)
    elif change.kind == "element":
        yield _element_culprit(change, bad, good, origins)
    elif change.kind == "argument":
        yield _argument_culprit(change, bad, good)
    elif change.kind == "directory":
        yield Culprit(kind="directory", name="", fails=bad.cwd, works=good.cwd, fix=f"run in {good.cwd}")
    else:
        yield Culprit(kind="program", name="", fails=bad.program, works=good.program, fix=f"{good.program} run instead")


def _masked_value(name: str, value: str | None) -> str | None:
    return None if value is None else masking.variable(name, value)


def _element_culprit(change: Change, bad: Situation, good: Situation, origins: Mapping[str, str]) -> Culprit:
    name, hunk = change.name, change.hunk
    assert hunk is not None  # noqa: S101 - an element is one by its place
    separator = differences.list_separator(name, bad.environ[name], good.environ[name]) or ":"
    before, after = bad.environ[name].split(separator), good.environ[name].split(separator)
    gone, new = before[hunk.start : hunk.stop], after[hunk.start_ : hunk.stop_]
    if gone:
        fix = f"{gone[0]} removed from {name}"
    else:
        place = f"before {before[hunk.start]}" if hunk.start < len(before) else "at the end"
        fix = f"{new[0]} in {name} {place}"
    return Culprit(
        kind="element",
        name=name,
        fails=gone[0] if gone else None,
        works=new[0] if new else None,
        origin=origins.get(name, ""),
        fix=fix,
    )


def _argument_culprit(change: Change, bad: Situation, good: Situation) -> Culprit:
    hunk = change.hunk
    assert hunk is not None  # noqa: S101 - the same
    ours = differences.without_outputs(bad)[hunk.start : hunk.stop]
    theirs = differences.without_outputs(good)[hunk.start_ : hunk.stop_]
    fails, works = (masking.text(" ".join(option.shown for option in side)) for side in (ours, theirs))
    fix = f"{works} instead of {fails}" if ours and theirs else f"{works} added" if theirs else f"{fails} removed"
    name = (ours or theirs)[0].name
    return Culprit(kind="argument", name=name, fails=fails or None, works=works or None, fix=fix)


def _sentence(found: Culprits, culprits: tuple[Culprit, ...], bad: Situation, good: Situation) -> str:
    if found.verdict == "same":
        failing = f"fails in the same way ({found.left.error or f'status {found.left.status}'})"
        how = "works" if found.left.works else failing
        there = "here" if good.label == "here" else f"in {good.label}"
        return f"It {how} in {bad.label} and {there}: the differences between them are not the cause."
    if found.verdict == "flaky":
        (left, of_left), (right, of_right) = found.rates or ((0, 0), (0, 0))
        return (
            f"The call does not always behave the same: it works in {left} of {of_left} runs in {bad.label} and in "
            f"{right} of {of_right} in {good.label}, without any change. No variable is to blame: look at what runs at "
            "the same time."
        )
    if found.verdict == "elsewhere":
        return (
            f"It works in one of {bad.label} and {good.label}, but carrying over every known difference does not fix "
            "it: a masked secret, or something outside the environment (limits, the terminal), makes the difference."
        )
    wanted = found.left if found.from_ == "right" else found.right
    result = "it works" if wanted.works else f"it fails as {good.label} does"
    sentence = f"In {bad.label} it fails: with {' and '.join(each.fix for each in culprits)} {result}."
    more = " Fewer changes may be enough, but --max-runs was reached."
    return sentence + more if found.verdict == "unfinished" else sentence
