"""From the journal to what it tells: rates, which axes matter, what is not known yet. One pass over the lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.support import files, masking
from cuwheel.support.answer import Answer
from cuwheel_core.errors import MalformedError
from cuwheel_core.support import wording
from cuwheel_lab.measuring import journal, rates
from cuwheel_lab.measuring.journal import End, FailedCall, GpuUse, Header, Outcome, Package, Start
from cuwheel_lab.measuring.rates import Counts

if TYPE_CHECKING:
    from cuwheel_lab.measuring.trials_file import Plan


# What each axis does to the rate of failures, judged among conditions that are alike in all else.

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


def effects_of_axes(
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
    more = None
    if stage.finished and verdict == "not decided":
        # Of each value, should the rates be what they look like now; none where they look the same.
        alpha = rates.ALPHA / 2.0 ** (stage.look + 1) / max(axes, 1)
        needed = rates.runs_to_tell(low.rate or 0.0, high.rate or 0.0, alpha)
        more = max(1, needed - min(low.runs, high.runs)) if needed else None
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


def _says(
    axis: str, verdict: Verdict, low: Side, high: Side, p: float, difference: tuple[float, float], stage: Stage
) -> str:
    seen = f"{_of_runs(low)} with {axis} {low.value}, {_of_runs(high)} with {axis} {high.value}"
    if verdict == "prevents":
        return (
            f"{seen} (p {_p_words(p)}). With {low.value} it was not seen; "
            f"a rate up to {wording.percent(low.interval[1])} is not ruled out."
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


_SHOWN_FAILURES = 20
_LONGEST_NOTE = 120
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


class PlannedCondition(Struct, frozen=True, kw_only=True):
    axes: dict[str, str]
    command: tuple[str, ...]


class Warmings(Struct, frozen=True, kw_only=True):
    """Runs that warm up before a warm trial, and are counted nowhere else."""

    runs: int
    failures: int


class Trials(Answer, frozen=True, kw_only=True):
    """`groups`: by condition. `effects`: by axis. `unknown`: what is not known yet, in sentences.

    `planned`: with --dry-run alone, what would be run. `without_result`: killed or interrupted, and run again.
    `look`: 1 for the first plan, one more for each with which somebody went on; p values are corrected for it.
    `cold`: how the trials started, in words, and how many did.
    """

    schema: Literal["cuwheel.trials/1"] = "cuwheel.trials/1"
    file: str
    folder: str
    seed: int | None = None
    repeats: int
    only: dict[str, str] = {}  # noqa: RUF012 - copied
    axes: dict[str, tuple[str, ...]]
    look: int = 1
    done: bool = False
    running: bool = False
    runs: int = 0
    failures: int = 0
    groups: tuple[Group, ...] = ()
    effects: tuple[Effect, ...] = ()
    unknown: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    failed: tuple[Failed, ...] = ()
    without_result: int = 0
    warm_ups: Warmings | None = None
    boots: int = 0
    cold: dict[str, int] = {}  # noqa: RUF012 - copied
    traced: bool = False
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_use: tuple[GpuUse, ...] = ()
    packages: tuple[tuple[Package, ...], ...] = ()
    tool: str = ""
    planned: tuple[PlannedCondition, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.failures == 0


def planned_trials(plan: Plan, folder: Path) -> Trials:
    """What would be run."""
    return Trials(
        file=plan.file,
        folder=str(folder),
        seed=plan.seed,
        repeats=plan.repeats,
        axes=plan.axes,
        planned=tuple(
            PlannedCondition(axes=each.choices, command=tuple(masking.words(each.words))) for each in plan.conditions
        ),
    )


class _Tally:
    """What is kept of the journal while it is read: sums, never the trials themselves."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.look, self._new = 1, False
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

    def plan(self, header: Header) -> None:
        """Another plan after runs of an earlier one is another look; going on with the same one, after a crash, not."""
        if self.header and self._new and _planned(self.header) != _planned(header):
            self.look, self._new = self.look + 1, False
        self.header = header

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
        self._new = True
        self.runs[number] += 1
        self.failures[number] += failed
        self.ignored[number] += end.ignored is not None
        if failed:
            self.kinds[number][end.outcome] += 1
            self._keep(start, end)
        if end.seconds:
            self.seconds[number] += end.seconds
            self.timed[number] += 1
        cold = start.cold
        parts = [f"JIT cache {cold.jit_cache}", f"page cache {cold.page_cache}"]
        parts += [f"modules loaded {cold.module_loading}"] if cold.module_loading else []
        parts += ["after a restart"] if cold.rebooted else []
        note = f" ({cold.note[:_LONGEST_NOTE]})" if cold.note else ""
        self.cold[f"{cold.asked}: {', '.join(parts)}{note}"] += 1
        for each in end.gpus:
            before = self.hottest.get(each.name)
            if before is None or (each.temperature_most or 0) > (before.temperature_most or 0):
                self.hottest[each.name] = each

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


def _planned(header: Header) -> tuple[int, list[int]]:
    """How often, and which conditions."""
    return header.repeats, [
        number for number, each in enumerate(header.conditions) if header.only.items() <= each.items()
    ]


def analyse(folder: Path) -> Trials:
    """The answer of a journal, also one that is being written, or that a crash cut short."""
    tally = _Tally()
    began: Start | None = None
    for line in journal.read_lines(folder):
        if line.header:
            tally.plan(line.header)
        elif line.start:
            began = line.start
        elif line.end and began and line.end.trial == began.trial:
            tally.take(began, line.end)
            began = None
    if tally.header is None:
        raise MalformedError(folder / journal.NAME, "it has no header, so no trial began", hint="run the trials again")
    running = journal.is_running(folder)
    if began and not running:
        tally.take(began, End(trial=began.trial, outcome=journal.outcome_without_end(began, journal.boot_id()), at=0))
    header = tally.header
    known = [number for number in sorted(tally.runs) if 0 <= number < len(header.conditions)]
    counts = {number: Counts(tally.failures[number], tally.runs[number]) for number in known}
    repeats, chosen = _planned(header)
    finished = all(tally.runs[number] >= repeats for number in chosen)
    stage = Stage(look=tally.look, finished=finished)
    effects = tuple(effects_of_axes(header, counts, _means(header, tally), stage))
    total = summed(counts.values())
    return Trials(
        file=header.file,
        folder=str(files.absolute(folder)),
        seed=header.seed,
        repeats=header.repeats,
        only=header.only,
        axes=header.axes,
        look=tally.look,
        done=finished,
        running=running,
        runs=total.runs,
        failures=total.failures,
        groups=tuple(_group(header, tally, number, counts[number]) for number in known),
        effects=effects,
        unknown=tuple(_unknown(total, effects, header, counts, finished=finished)),
        kernels=tuple(Kernel(call=call, trials=number) for call, number in tally.kernels.most_common(_SHOWN_FAILURES)),
        failed=tuple(tally.failed),
        without_result=tally.without_result,
        warm_ups=Warmings(runs=tally.warm_ups, failures=tally.failed_warm_ups),
        boots=len(tally.boots),
        cold=dict(tally.cold.most_common()),
        traced=header.traced,
        driver=header.driver,
        gpus=header.gpus,
        gpu_use=tuple(tally.hottest.values()),
        packages=header.packages,
        tool=header.tool,
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


def _means(header: Header, tally: _Tally) -> dict[tuple[str, str], float]:
    """How long a trial took on average, by axis and value."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    numbers: Counter[tuple[str, str]] = Counter()
    for number, choices in enumerate(header.conditions):
        for each in choices.items():
            sums[each] += tally.seconds[number]
            numbers[each] += tally.timed[number]
    return {each: sums[each] / number for each, number in numbers.items() if number}


def _unknown(
    total: Counts, effects: Iterable[Effect], header: Header, counts: Mapping[int, Counts], *, finished: bool
) -> Iterator[str]:
    if total.runs and not total.failures:
        most = rates.wilson(*total)[1]
        up_to = wording.percent(most, 1)
        yield f"No failure in {total.runs} runs: a rate up to {up_to} is not ruled out.{_rarer(total.runs)}"
        return
    for effect in effects:
        if effect.verdict == "not decided" and effect.more_runs:
            ordered = sorted(effect.sides, key=lambda side: side.rate or 0.0)
            low, high = ordered[0], ordered[-1]
            yield (
                f"{effect.axis}: about {effect.more_runs} more runs of each value would tell "
                f"{wording.percent(high.rate or 0)} ({high.value}) from {wording.percent(low.rate or 0)} ({low.value})."
            )
        elif effect.verdict == "not decided" and finished:
            yield f"{effect.axis}: the rates look the same; whether they are takes far more runs."
        for side in effect.sides:
            if side.value in effect.prevented_by and side.interval[1] > _RARE:
                yield f"{effect.axis} {side.value}: {side.failures} of {side.runs}.{_rarer(side.runs)}"
    yield from _rate_not_known(header, counts)


def _rarer(runs: int) -> str:
    more = rates.runs_without_failure(_RARE) - runs
    return f" {more} more without a failure would bring that below {wording.percent(_RARE)}." if more > 0 else ""


def _rate_not_known(header: Header, counts: Mapping[int, Counts]) -> Iterator[str]:
    """Says how many runs would tell the rate of the condition that fails most from its interval's lower end."""
    failing = {number: each for number, each in counts.items() if each.failures}
    if not failing:
        return
    number = max(failing, key=lambda each: failing[each].rate)
    worst = failing[number]
    low = round(rates.wilson(*worst)[0], 1)
    if worst.rate - low <= 0.1:  # noqa: PLR2004 - known well enough
        return
    name = " ".join(header.conditions[number].values()) or "these"
    # Until so many failures, at the rate seen, would be too many for the lower rate (one-sided, 97.5 %).
    for more in range(1, 1000):
        runs = worst.runs + more
        if rates.binomial_tail(round(worst.rate * runs), runs, low) < rates.ALPHA / 2:
            yield f"{more} more runs of {name} would tell {wording.percent(worst.rate)} from {wording.percent(low)}."
            return
