"""From the journal to what it tells: rates, which axes matter, what is not known yet. One pass over the lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import MalformedError
from cuwheel.proving.measuring import axis_effects, journal, rates
from cuwheel.proving.measuring.axis_effects import Effect
from cuwheel.proving.measuring.journal import Cold, End, FailedCall, GpuUse, Header, Outcome, Package, Start
from cuwheel.proving.measuring.rates import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

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


class Analysis(Struct, frozen=True, kw_only=True):
    """`unknown`: what is not known yet, in sentences. `without_result`: killed or interrupted, and run again.

    `uncounted`: runs that warmed up, and how many of them failed. `look`: the first plan's, or that of how manieth.
    """

    header: Header
    look: int
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


def _planned(header: Header) -> tuple[int, list[int]]:
    """How often, and which conditions."""
    return header.repeats, [
        number for number, each in enumerate(header.conditions) if header.only.items() <= each.items()
    ]


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
    return _analysed(tally, tally.header, running=running)


def _analysed(tally: _Tally, header: Header, *, running: bool) -> Analysis:
    known = [number for number in sorted(tally.runs) if 0 <= number < len(header.conditions)]
    counts = {number: Counts(tally.failures[number], tally.runs[number]) for number in known}
    repeats, chosen = _planned(header)
    finished = all(tally.runs[number] >= repeats for number in chosen)
    stage = axis_effects.Stage(look=tally.look, finished=finished)
    effects = tuple(axis_effects.of_axes(header, counts, _means(header, tally), stage))
    total = axis_effects.summed(counts.values())
    return Analysis(
        header=header,
        look=tally.look,
        done=finished,
        running=running,
        runs=total.runs,
        failures=total.failures,
        boots=len(tally.boots),
        groups=tuple(_group(header, tally, number, counts[number]) for number in known),
        effects=effects,
        unknown=tuple(_unknown(total, effects, header, counts, finished=finished)),
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
        yield f"No failure in {total.runs} runs: a rate up to {most:.1%} is not ruled out.{_rarer(total.runs)}"
        return
    for effect in effects:
        if effect.verdict == "not decided" and effect.more_runs:
            ordered = sorted(effect.sides, key=lambda side: side.rate or 0.0)
            low, high = ordered[0], ordered[-1]
            yield (
                f"{effect.axis}: about {effect.more_runs} more runs of each value would tell "
                f"{high.rate or 0:.0%} ({high.value}) from {low.rate or 0:.0%} ({low.value})."
            )
        elif effect.verdict == "not decided" and finished:
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
