"""What was found to make the difference, in words: who is to blame, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.building.recording import differences
from cuwheel.building.recording.culprits import Culprits, Kind, Outcome, Verdict
from cuwheel.support import masking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.building.recording.culprits import Change
    from cuwheel.building.recording.differences import Situation


class Culprit(Struct, frozen=True, kw_only=True):
    """`fails`: as it is where it fails, None where it is not there; `works`: as it must be. `fix`: to do, in words."""

    kind: Kind
    name: str
    fails: str | None
    works: str | None
    origin: str = ""
    fix: str


class Blame(Struct, frozen=True, kw_only=True):
    """`failing`: the side to mend. `answer`: a sentence. `rates`: how many runs worked, of how many, of each side."""

    verdict: Verdict
    left: Outcome
    right: Outcome
    failing: Literal["left", "right"]
    culprits: tuple[Culprit, ...]
    answer: str
    runs: int
    rates: tuple[tuple[int, int], tuple[int, int]] | None = None


def blame(found: Culprits, left: Situation, right: Situation, origins: Mapping[str, str]) -> Blame:
    bad, good = (right, left) if found.from_ == "right" else (left, right)
    culprits = tuple(culprit for change in found.changes for culprit in _culprits(change, bad, good, origins))
    return Blame(
        verdict=found.verdict,
        left=found.left,
        right=found.right,
        failing=found.from_,
        culprits=culprits,
        answer=_ANSWERS[found.verdict](found, culprits, bad, good),
        runs=found.runs,
        rates=found.rates,
    )


def _culprits(change: Change, bad: Situation, good: Situation, origins: Mapping[str, str]) -> Iterator[Culprit]:
    if change.kind == "variable":
        fails, works = (_masked(change.name, side.environ.get(change.name)) for side in (bad, good))
        fix = f"{change.name} unset" if works is None else f"{change.name}={works}"
        origin = origins.get(change.name, "") if fails is not None else ""
        yield Culprit(kind="variable", name=change.name, fails=fails, works=works, origin=origin, fix=fix)
    elif change.kind == "element":
        yield _element(change, bad, good, origins)
    elif change.kind == "argument":
        yield _argument(change, bad, good)
    elif change.kind == "directory":
        yield Culprit(kind="directory", name="", fails=bad.cwd, works=good.cwd, fix=f"run in {good.cwd}")
    else:
        yield Culprit(kind="program", name="", fails=bad.program, works=good.program, fix=f"{good.program} run instead")


def _masked(name: str, value: str | None) -> str | None:
    return None if value is None else masking.variable(name, value)


def _element(change: Change, bad: Situation, good: Situation, origins: Mapping[str, str]) -> Culprit:
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


def _argument(change: Change, bad: Situation, good: Situation) -> Culprit:
    hunk = change.hunk
    assert hunk is not None  # noqa: S101 - the same
    ours = differences.without_outputs(bad)[hunk.start : hunk.stop]
    theirs = differences.without_outputs(good)[hunk.start_ : hunk.stop_]
    fails, works = (masking.text(" ".join(option.shown for option in side)) for side in (ours, theirs))
    fix = f"{works} instead of {fails}" if ours and theirs else f"{works} added" if theirs else f"{fails} removed"
    name = (ours or theirs)[0].name
    return Culprit(kind="argument", name=name, fails=fails or None, works=works or None, fix=fix)


def _found(found: Culprits, culprits: tuple[Culprit, ...], bad: Situation, good: Situation) -> str:
    wanted = found.left if found.from_ == "right" else found.right
    result = "it works" if wanted.works else f"it fails as {good.label} does"
    return f"In {bad.label} it fails: with {' and '.join(each.fix for each in culprits)} {result}."


def _unfinished(found: Culprits, culprits: tuple[Culprit, ...], bad: Situation, good: Situation) -> str:
    return _found(found, culprits, bad, good) + " Fewer changes may be enough, but --max-runs was reached."


def _same(found: Culprits, _culprits_found: tuple[Culprit, ...], bad: Situation, good: Situation) -> str:
    how = (
        "works" if found.left.works else f"fails in the same way ({found.left.error or f'status {found.left.status}'})"
    )
    return f"It {how} in {bad.label} and in {good.label}: the differences between them are not the cause."


def _flaky(found: Culprits, _culprits_found: tuple[Culprit, ...], bad: Situation, good: Situation) -> str:
    (left, of_left), (right, of_right) = found.rates or ((0, 0), (0, 0))
    return (
        f"The call does not always behave the same: it works in {left} of {of_left} runs in {bad.label} and in "
        f"{right} of "
        f"{of_right} in {good.label}, without any change. No variable is to blame: look at what runs at the same time."
    )


def _other_machine(_found: Culprits, _culprits_found: tuple[Culprit, ...], bad: Situation, good: Situation) -> str:
    return (
        f"It works in one of {bad.label} and {good.label}, but carrying over every known difference does not fix it: "
        f"a masked secret, or something outside the environment (limits, the terminal), makes the difference."
    )


_ANSWERS = {
    "found": _found,
    "unfinished": _unfinished,
    "same": _same,
    "flaky": _flaky,
    "elsewhere": _other_machine,
}
