"""What each axis does to the rate of failures, judged among conditions that are alike in all else."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.measuring import rates
from cuwheel.measuring.rates import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cuwheel.measuring.journal import Header

# prevents: with one value it was never seen, with another it was, and chance is unlikely to have done that.
# matters: seen with every value, not equally often. no difference: enough runs and none seen. not decided: too few.
Verdict: TypeAlias = Literal["prevents", "matters", "no difference", "not decided"]
_WORTH_KNOWING = 0.2  # a difference of rates that is smaller is called none, where it can be ruled out


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
    axes (`p_plain`: not). `prevented_by`: values with which no failure was seen. `more_runs`: of each value, to decide.
    """

    axis: str
    sides: tuple[Side, ...]
    p: float
    p_plain: float
    verdict: Verdict
    prevented_by: tuple[str, ...] = ()
    more_runs: int | None = None
    says: str = ""


def summed(counts: Iterable[Counts]) -> Counts:
    listed = list(counts)
    return Counts(sum(each.failures for each in listed), sum(each.runs for each in listed))


def of_axes(header: Header, counts: Mapping[int, Counts], means: Mapping[tuple[str, str], float]) -> Iterator[Effect]:
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
        yield _judged(axis, sides, corrected[axis], p, len(plain))


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


def _judged(axis: str, sides: tuple[Side, ...], p: float, p_plain: float, axes: int) -> Effect:
    ordered = sorted(sides, key=lambda side: side.rate or 0.0)
    low, high = ordered[0], ordered[-1]
    never = tuple(side.value for side in sides if side.failures == 0)
    decided = p < rates.ALPHA
    if decided:
        verdict: Verdict = "prevents" if never else "matters"
    else:
        apart = high.interval[1] - low.interval[0]
        verdict = "no difference" if apart <= _WORTH_KNOWING else "not decided"
    more = None if decided or verdict == "no difference" else _more_runs(low, high, axes)
    return Effect(
        axis=axis,
        sides=sides,
        p=p,
        p_plain=p_plain,
        verdict=verdict,
        prevented_by=never if verdict == "prevents" else (),
        more_runs=more,
        says=_says(axis, verdict, low, high, more, p),
    )


def _more_runs(low: Side, high: Side, axes: int) -> int | None:
    """Of each value, should the rates be what they look like now. None where they look the same."""
    needed = rates.runs_to_tell(low.rate or 0.0, high.rate or 0.0, rates.ALPHA / max(axes, 1))
    return max(1, needed - min(low.runs, high.runs)) if needed else None


def _says(axis: str, verdict: Verdict, low: Side, high: Side, more: int | None, p: float) -> str:
    seen = f"{_of_runs(low)} with {axis} {low.value}, {_of_runs(high)} with {axis} {high.value}"
    if verdict == "prevents":
        return (
            f"{seen} (p {_p_words(p)}). With {low.value} it was not seen; "
            f"a rate up to {low.interval[1]:.0%} is not ruled out."
        )
    if verdict == "matters":
        return f"{seen} (p {_p_words(p)}). It was seen with every value, and not equally often."
    if verdict == "no difference":
        return f"{seen}. The rates differ by at most {high.interval[1] - low.interval[0]:.0%}."
    if more is None:
        return f"{seen}. That is no sign of a difference, nor proof that there is none."
    return f"{seen}. Chance alone may do that (p {_p_words(p)})."


def _of_runs(side: Side) -> str:
    return f"{side.failures} of {side.runs}"


def _p_words(p: float) -> str:
    return "below 0.0001" if p < 0.0001 else f"{p:.2g}"  # noqa: PLR2004 - four digits are enough for anybody
