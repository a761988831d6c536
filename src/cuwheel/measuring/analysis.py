"""From the journal to what it tells: rates, which axes matter, what is not known yet. One pass over the lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.errors import MalformedError
from cuwheel.measuring import journal, rates
from cuwheel.measuring.journal import Cold, End, FailedCall, GpuUse, Header, Outcome, Package, Start
from cuwheel.measuring.rates import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

# prevents: with one value it was never seen, with another it was, and chance is unlikely to have done that.
# matters: seen with every value, not equally often. no difference: enough runs and none seen. not decided: too few.
Verdict: TypeAlias = Literal["prevents", "matters", "no difference", "not decided"]
_SHOWN_FAILURES = 20
_LONGEST_NOTE = 120
_WORTH_KNOWING = 0.2  # a difference of rates that is smaller is called none, where it can be ruled out
_RARE = 0.05  # the rate that "never seen" is held against


class Group(Struct, frozen=True, kw_only=True):
    """Trials under one condition. `axes`: axis → value. `interval`: the rates that go with it, at 95 %."""

    axes: dict[str, str]
    runs: int
    failures: int
    rate: float | None
    interval: tuple[float, float]
    kinds: dict[str, int]
    seconds: float | None
    ignored: int = 0


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


class Failed(Struct, frozen=True, kw_only=True):
    """One of the failures, to look at."""

    trial: int
    axes: dict[str, str]
    outcome: Outcome
    message: str
    output: str
    failed_call: FailedCall | None = None


class Kernel(Struct, frozen=True, kw_only=True):
    """A call that `trace` saw fail, and in how many trials."""

    call: FailedCall
    trials: int


class Analysis(Struct, frozen=True, kw_only=True):
    """`unknown`: what is not known yet, in sentences. `without_result`: killed or interrupted, and run again.

    `uncounted`: runs that warmed up, and how many of them failed.
    """

    header: Header
    done: bool
    running: bool
    runs: int
    failures: int
    boots: int
    groups: tuple[Group, ...]
    effects: tuple[Effect, ...]
    unknown: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    failed: tuple[Failed, ...]
    without_result: int
    uncounted: Counts
    cold: dict[str, int]
    packages: tuple[tuple[Package, ...], ...]
    gpus: tuple[GpuUse, ...]


class _Tally:
    """What is kept of the journal while it is read: sums, never the trials themselves."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.runs: Counter[int] = Counter()
        self.failures: Counter[int] = Counter()
        self.ignored: Counter[int] = Counter()
        self.kinds: dict[int, Counter[str]] = defaultdict(Counter)
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.timed: Counter[int] = Counter()
        self.boots: set[str] = set()
        self.cold: Counter[str] = Counter()
        self.failed: list[Failed] = []
        self.kernels: Counter[FailedCall] = Counter()
        self.warm_ups, self.failed_warm_ups, self.without_result = 0, 0, 0
        self.hottest: dict[str, GpuUse] = {}

    def take(self, start: Start, end: End) -> None:
        failed = end.outcome != "passed"
        self.boots.add(start.boot)
        if end.outcome in journal.NO_RESULT:
            self.without_result += 1
            return
        if not start.counted:
            self.warm_ups, self.failed_warm_ups = self.warm_ups + 1, self.failed_warm_ups + failed
            return
        number = start.condition
        self.runs[number] += 1
        self.failures[number] += failed
        self.ignored[number] += end.ignored is not None
        if failed:
            self.kinds[number][end.outcome] += 1
            self._keep(start, end)
        if end.seconds:
            self.seconds[number] += end.seconds
            self.timed[number] += 1
        self.cold[_cold_words(start.cold)] += 1
        for each in end.gpus:
            self.hottest[each.name] = _hotter(self.hottest.get(each.name), each)

    def _keep(self, start: Start, end: End) -> None:
        if end.failed_call:
            self.kernels[end.failed_call] += 1
        if len(self.failed) < _SHOWN_FAILURES and self.header and 0 <= start.condition < len(self.header.conditions):
            self.failed.append(
                Failed(
                    trial=start.trial,
                    axes=self.header.conditions[start.condition],
                    outcome=end.outcome,
                    message=end.message,
                    output=end.output,
                    failed_call=end.failed_call,
                )
            )


def _cold_words(cold: Cold) -> str:
    parts = [f"JIT cache {cold.jit_cache}", f"page cache {cold.page_cache}"]
    parts += [f"modules loaded {cold.module_loading}"] if cold.module_loading else []
    parts += ["after a restart"] if cold.rebooted else []
    return f"{cold.asked}: {', '.join(parts)}" + (f" ({cold.note[:_LONGEST_NOTE]})" if cold.note else "")


def _hotter(one: GpuUse | None, other: GpuUse) -> GpuUse:
    return other if one is None or (other.temperature_most or 0) > (one.temperature_most or 0) else one


def read(folder: Path) -> Analysis:
    """Of a journal, also one that is being written, or that a crash cut short."""
    tally = _Tally()
    began: Start | None = None
    for line in journal.lines(folder):
        tally.header = line.header or tally.header
        if line.start:
            began = line.start
        elif line.end and began and line.end.trial == began.trial:
            tally.take(began, line.end)
            began = None
    if tally.header is None:
        raise MalformedError(folder / journal.NAME, "it has no header, so no trial began", hint="run the trials again")
    running = journal.is_running(folder)
    if began and not running:
        tally.take(began, End(trial=began.trial, outcome=journal.outcome_without_end(began, journal.boot_id()), at=0))
    return _analysed(tally, tally.header, running=running)


def _analysed(tally: _Tally, header: Header, *, running: bool) -> Analysis:
    known = [number for number in sorted(tally.runs) if 0 <= number < len(header.conditions)]
    counts = {number: Counts(tally.failures[number], tally.runs[number]) for number in known}
    effects = tuple(_effects(header, counts, _means(header, tally)))
    total = _summed(counts.values())
    wanted = header.repeats * len(header.conditions)
    return Analysis(
        header=header,
        done=sum(tally.runs.values()) >= wanted,
        running=running,
        runs=total.runs,
        failures=total.failures,
        boots=len(tally.boots),
        groups=tuple(_group(header, tally, number, counts[number]) for number in known),
        effects=effects,
        unknown=tuple(_unknown(total, effects, header, counts)),
        kernels=tuple(Kernel(call=call, trials=number) for call, number in tally.kernels.most_common(_SHOWN_FAILURES)),
        failed=tuple(tally.failed),
        without_result=tally.without_result,
        uncounted=Counts(tally.failed_warm_ups, tally.warm_ups),
        cold=dict(tally.cold.most_common()),
        packages=header.packages,
        gpus=tuple(tally.hottest.values()),
    )


def _group(header: Header, tally: _Tally, number: int, counts: Counts) -> Group:
    timed = tally.timed[number]
    return Group(
        axes=header.conditions[number],
        runs=counts.runs,
        failures=counts.failures,
        rate=counts.rate if counts.runs else None,
        interval=rates.wilson(*counts),
        kinds=dict(tally.kinds[number]),
        seconds=tally.seconds[number] / timed if timed else None,
        ignored=tally.ignored[number],
    )


def _summed(counts: Iterable[Counts]) -> Counts:
    listed = list(counts)
    return Counts(sum(each.failures for each in listed), sum(each.runs for each in listed))


def _means(header: Header, tally: _Tally) -> dict[tuple[str, str], float]:
    """How long a trial took on average, by axis and value."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    numbers: Counter[tuple[str, str]] = Counter()
    for number, choices in enumerate(header.conditions):
        for each in choices.items():
            sums[each] += tally.seconds[number]
            numbers[each] += tally.timed[number]
    return {each: sums[each] / number for each, number in numbers.items() if number}


def _effects(header: Header, counts: Mapping[int, Counts], means: Mapping[tuple[str, str], float]) -> Iterator[Effect]:
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
            if (side := _summed(group[value] for group in alike[axis] if value in group)).runs
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
            (group[value], _summed(each for name, each in group.items() if name != value))
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


def _unknown(total: Counts, effects: Iterable[Effect], header: Header, counts: Mapping[int, Counts]) -> Iterator[str]:
    if total.runs and not total.failures:
        most = rates.wilson(*total)[1]
        yield f"No failure in {total.runs} runs: a rate up to {most:.1%} is not ruled out.{_rarer(total.runs)}"
        return
    for effect in effects:
        if effect.verdict == "not decided" and effect.more_runs:
            low, high = sorted(effect.sides, key=lambda side: side.rate or 0.0)[:: max(1, len(effect.sides) - 1)][:2]
            yield (
                f"{effect.axis}: about {effect.more_runs} more runs of each value would tell "
                f"{high.rate or 0:.0%} ({high.value}) from {low.rate or 0:.0%} ({low.value})."
            )
        elif effect.verdict == "not decided":
            yield f"{effect.axis}: the rates look the same; whether they are takes far more runs."
        for side in effect.sides:
            if side.value in effect.prevented_by and side.interval[1] > _RARE:
                yield f"{effect.axis} {side.value}: {side.failures} of {side.runs}.{_rarer(side.runs)}"
    yield from _rate_not_known(header, counts)


def _rarer(runs: int) -> str:
    more = rates.runs_without_failure(_RARE) - runs
    return f" {more} more without a failure would bring that below {_RARE:.0%}." if more > 0 else ""


def _rate_not_known(header: Header, counts: Mapping[int, Counts]) -> Iterator[str]:
    """Of the condition that fails most: how many runs tell its rate from the lower end of its interval."""
    failing = {number: each for number, each in counts.items() if each.failures}
    if not failing:
        return
    number = max(failing, key=lambda each: failing[each].rate)
    worst = failing[number]
    low = round(rates.wilson(*worst)[0], 1)
    if worst.rate - low <= 0.1:  # noqa: PLR2004 - known well enough
        return
    more = _more_of_one(worst, low)
    name = " ".join(header.conditions[number].values()) or "these"
    if more:
        yield f"{more} more {name} runs would tell {worst.rate:.0%} from {low:.0%}."


def _more_of_one(seen: Counts, low: float) -> int | None:
    """Until so many failures, at the rate seen, would be too many for the lower rate (one-sided, 97.5 %)."""
    for more in range(1, 1000):
        runs = seen.runs + more
        if rates.binomial_tail(round(seen.rate * runs), runs, low) < rates.ALPHA / 2:
            return more
    return None
