"""What each axis does to the rate of failures, judged among conditions that are alike in all else."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.proving.measuring import rates
from cuwheel.proving.measuring.rates import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cuwheel.proving.measuring.journal import Header

# prevents: with one value it was never seen, with another it was, and chance is unlikely to have done that.
# matters: seen with every value, not equally often. close: the rates differ by at most 20 points. not decided: too few
# runs, or not all that were planned.
Verdict: TypeAlias = Literal["prevents", "matters", "close", "not decided"]
_CLOSE = 0.2  # rates that differ by no more, where more can be ruled out


class Side(Struct, frozen=True, kw_only=True):
    """Trials with one value of an axis, under conditions that were also tried with another."""

    value: str
    runs: int
    failures: int
    rate: float | None
    interval: tuple[float, float]
    seconds: float | None = None


class Effect(Struct, frozen=True, kw_only=True):
    """What an axis does. `p`: of the exact test within groups that are alike in all else, corrected for the number of
    axes and of looks (`p_plain`: not). `difference`: between the highest rate and the lowest, what it lies between.
    `prevented_by`: values with which no failure was seen. `more_runs`: of each value, to decide.
    """

    axis: str
    sides: tuple[Side, ...]
    p: float
    p_plain: float
    verdict: Verdict
    difference: tuple[float, float]
    prevented_by: tuple[str, ...] = ()
    more_runs: int | None = None
    says: str = ""


def summed(counts: Iterable[Counts]) -> Counts:
    listed = list(counts)
    return Counts(sum(each.failures for each in listed), sum(each.runs for each in listed))


class Stage(Struct, frozen=True, kw_only=True):
    """How far a campaign is. `look`: of how many plans this is the last: the first, and every one to go on with.

    `finished`: all that was planned has been run. Whoever looks before that, and stops when the result pleases, would
    find a difference by chance sooner or later, so nothing is decided before.
    """

    look: int = 1
    finished: bool = True


def of_axes(
    header: Header, counts: Mapping[int, Counts], means: Mapping[tuple[str, str], float], stage: Stage
) -> Iterator[Effect]:
    """`means`: how long a trial took, by axis and value."""
    alike = {axis: _alike(header, counts, axis) for axis in header.axes}
    plain = {axis: _p_of_axis(groups) for axis, groups in alike.items() if groups}
    corrected = rates.holm(plain)
    for axis, p in plain.items():
        sides = tuple(
            Side(
                value=value,
                runs=side.runs,
                failures=side.failures,
                rate=side.rate,
                interval=rates.wilson(*side),
                seconds=means.get((axis, value)),
            )
            for value in header.axes[axis]
            if (side := summed(group[value] for group in alike[axis] if value in group)).runs
        )
        yield _judged(axis, sides, (rates.spent(corrected[axis], stage.look), p), len(plain), stage)


def _alike(header: Header, counts: Mapping[int, Counts], axis: str) -> list[dict[str, Counts]]:
    """Conditions that are alike but for this axis, by its value; those with which nothing can be compared are left out:
    where one axis is changed at a time, most conditions are beside the point of any other axis.
    """
    groups: dict[tuple[tuple[str, str], ...], dict[str, Counts]] = defaultdict(dict)
    for number, each in counts.items():
        choices = header.conditions[number]
        if axis in choices and each.runs:
            rest = tuple(sorted((name, value) for name, value in choices.items() if name != axis))
            groups[rest][choices[axis]] = each
    return [group for group in groups.values() if len(group) > 1]


def _p_of_axis(groups: Sequence[Mapping[str, Counts]]) -> float:
    """Each value against all others, within conditions that are alike but for this axis.

    Of more than two values the smallest p counts, times the number of comparisons.
    """
    values = list(dict.fromkeys(value for group in groups for value in group))
    compared = values[:1] if len(values) == 2 else values  # noqa: PLR2004 - two sides are one comparison
    found = [
        rates.exact_p(
            (group[value], summed(each for name, each in group.items() if name != value))
            for group in groups
            if value in group
        )
        for value in compared
    ]
    return min(1.0, min(found) * len(compared))


def _judged(axis: str, sides: tuple[Side, ...], p_values: tuple[float, float], axes: int, stage: Stage) -> Effect:
    """`p_values`: corrected, and plain."""
    p, p_plain = p_values
    ordered = sorted(sides, key=lambda side: side.rate or 0.0)
    low, high = ordered[0], ordered[-1]
    never = tuple(side.value for side in sides if side.failures == 0)
    difference = (high.interval[0] - low.interval[1], high.interval[1] - low.interval[0])
    verdict: Verdict = "not decided"
    if stage.finished and p < rates.ALPHA:
        verdict = "prevents" if never else "matters"
    elif stage.finished and difference[1] <= _CLOSE:
        verdict = "close"
    more = _more_runs(low, high, axes, stage.look + 1) if stage.finished and verdict == "not decided" else None
    return Effect(
        axis=axis,
        sides=sides,
        p=p,
        p_plain=p_plain,
        verdict=verdict,
        difference=difference,
        prevented_by=never if verdict == "prevents" else (),
        more_runs=more,
        says=_says(axis, verdict, low, high, p, difference, stage),
    )


def _more_runs(low: Side, high: Side, axes: int, look: int) -> int | None:
    """Of each value, should the rates be what they look like now. None where they look the same."""
    needed = rates.runs_to_tell(low.rate or 0.0, high.rate or 0.0, rates.ALPHA / 2.0**look / max(axes, 1))
    return max(1, needed - min(low.runs, high.runs)) if needed else None


def _says(
    axis: str, verdict: Verdict, low: Side, high: Side, p: float, difference: tuple[float, float], stage: Stage
) -> str:
    seen = f"{_of_runs(low)} with {axis} {low.value}, {_of_runs(high)} with {axis} {high.value}"
    if verdict == "prevents":
        return (
            f"{seen} (p {_p_words(p)}). With {low.value} it was not seen; "
            f"a rate up to {low.interval[1]:.0%} is not ruled out."
        )
    if verdict == "matters":
        return f"{seen} (p {_p_words(p)}). It was seen with every value, and not equally often."
    if not stage.finished:
        return f"{seen} so far. It is judged when all planned runs are done."
    between = f"{high.value} fails {difference[0] * 100:+.0f} to {difference[1] * 100:+.0f} points more often"
    return f"{seen}. Chance alone may do that (p {_p_words(p)}): {between}."


def _of_runs(side: Side) -> str:
    return f"{side.failures} of {side.runs}"


def _p_words(p: float) -> str:
    return "below 0.0001" if p < 0.0001 else f"{p:.2g}"  # noqa: PLR2004 - four digits are enough for anybody
