"""Bisection of a fault that is not certain: each candidate is run until it is decided at a stated error rate.

Wald's sequential test: after each run the evidence for "as bad as the bad one" is weighed against "as good as the good
one", and no more runs are made than that takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.proving.measuring import rates
from cuwheel.proving.measuring.rates import Counts

# One run of a candidate: whether it failed.
Attempt: TypeAlias = Callable[[int], bool]
Side: TypeAlias = Literal["good", "bad", "undecided"]
ENOUGH_FAILURES = 5  # of the bad one, until its rate is known well enough
MOST_RUNS = 300  # of one candidate


class Rates(Struct, frozen=True, kw_only=True):
    """Between which two a candidate is decided: it fails at most as often as `good`, or at least as often as `bad`."""

    good: float
    bad: float


class Decision(Struct, frozen=True, kw_only=True):
    """Of one candidate, by its place in the list."""

    candidate: int
    side: Side
    runs: int
    failures: int


class Found(Struct, frozen=True, kw_only=True):
    """`first_bad`: the first candidate that has the fault, None where it could not be decided.

    `foretold`: runs that were expected when the rates were known. `problem`: why there is no answer.
    """

    first_bad: int | None
    rates: Rates | None
    decisions: tuple[Decision, ...]
    runs: int
    foretold: int | None
    error: float
    problem: str = ""


def steps(candidates: int) -> int:
    """How many candidates between the first, which is good, and the last, which is bad, have to be decided."""
    return max(0, math.ceil(math.log2(candidates - 1))) if candidates > 1 else 0


def decide(candidate: int, attempt: Attempt, between: Rates, error: float, most: int = MOST_RUNS) -> Decision:
    """`error`: the chance of a wrong decision, either way."""
    limit = math.log((1 - error) / error)
    on_failure = math.log(between.bad / between.good) if between.good else math.inf
    on_success = math.log((1 - between.bad) / (1 - between.good)) if between.bad < 1 else -math.inf
    weight, failures = 0.0, 0
    for runs in range(1, most + 1):
        failed = attempt(candidate)
        failures += failed
        weight += on_failure if failed else on_success
        if abs(weight) >= limit:
            return Decision(candidate=candidate, side="bad" if weight > 0 else "good", runs=runs, failures=failures)
    return Decision(candidate=candidate, side="undecided", runs=most, failures=failures)


def expected_runs(between: Rates, error: float) -> tuple[float, float]:
    """Of a good candidate and of a bad one, on average (Wald's approximation; exact where a good one never fails)."""
    limit = math.log((1 - error) / error)
    if between.bad >= 1:
        return (1.0, 1.0)
    lost = math.log((1 - between.bad) / (1 - between.good))
    if not between.good:
        until_good = math.ceil(-limit / lost)
        return (until_good, (1 - (1 - between.bad) ** until_good) / between.bad)
    won = math.log(between.bad / between.good)
    drift = [rate * won + (1 - rate) * lost for rate in (between.good, between.bad)]
    step = (1 - 2 * error) * limit
    return (max(1.0, step / -drift[0]), max(1.0, step / drift[1]))


def foretell(candidates: int, between: Rates, error: float) -> int:
    """How many runs a bisection takes on average: half of the candidates in between are bad."""
    each = error / (steps(candidates) + 2)
    good, bad = expected_runs(between, each)
    return math.ceil(steps(candidates) * (good + bad) / 2 + good)


def bisect(
    candidates: int,
    attempt: Attempt,
    *,
    error: float,
    good_rate: float = 0.0,
    bad_rate: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Found:
    """The first bad one of so many, of which the first is good and the last bad. Both are tried, too.

    `error`: the chance that the answer is wrong, over all decisions. `bad_rate`: how often the bad one fails; else it
    is measured first, and the decisions are made against a rate that it exceeds for all but sure.
    """
    each = error / (steps(candidates) + 2)
    search = _Search(attempt, each)
    last = candidates - 1
    measured = bad_rate is None
    if bad_rate is None:
        seen = search.measure(last)
        bad_rate = rates.lower_bound(*seen, each)
        if seen.failures < ENOUGH_FAILURES or bad_rate <= good_rate:
            rarely = (
                f"the bad one failed in {seen.failures} of {seen.runs} runs: too rarely to tell it from the good one"
            )
            return search.ended(error, problem=rarely)
    between = Rates(good=good_rate, bad=bad_rate)
    foretold = foretell(candidates, between, error)
    tell(f"{steps(candidates)} to decide in about {foretold} runs; one that fails in {bad_rate:.0%} or more is bad")
    answer = search.first_bad(last, between, check_last=not measured)
    if isinstance(answer, str):
        return search.ended(error, between, foretold, problem=answer)
    return search.ended(error, between, foretold, first_bad=answer)


class _Search:
    """`error`: of one decision."""

    def __init__(self, attempt: Attempt, error: float) -> None:
        self._attempt, self._error = attempt, error
        self._decisions: list[Decision] = []

    def measure(self, candidate: int) -> Counts:
        """Runs until there are enough failures: the bound on the rate holds for runs that end so."""
        failures, runs = 0, 0
        while failures < ENOUGH_FAILURES and runs < MOST_RUNS:
            failures, runs = failures + self._attempt(candidate), runs + 1
        side: Side = "bad" if failures else "good"
        self._decisions.append(Decision(candidate=candidate, side=side, runs=runs, failures=failures))
        return Counts(failures, runs)

    def first_bad(self, last: int, between: Rates, *, check_last: bool) -> int | str:
        """Its place, or why there is none."""
        if self._side(0, between) != "good":
            return "the good one fails too, or it could not be decided"
        if check_last and self._side(last, between) != "bad":
            return "the bad one does not fail that often, or it could not be decided"
        low, high = 0, last
        while high - low > 1:
            middle = (low + high) // 2
            side = self._side(middle, between)
            if side == "undecided":
                return "one in between fails more often than the good one and less often than the bad one"
            low, high = (middle, high) if side == "good" else (low, middle)
        return high

    def _side(self, candidate: int, between: Rates) -> Side:
        decision = decide(candidate, self._attempt, between, self._error)
        self._decisions.append(decision)
        return decision.side

    def ended(
        self,
        error: float,
        between: Rates | None = None,
        foretold: int | None = None,
        *,
        first_bad: int | None = None,
        problem: str = "",
    ) -> Found:
        return Found(
            first_bad=first_bad,
            rates=between,
            decisions=tuple(self._decisions),
            runs=sum(each.runs for each in self._decisions),
            foretold=foretold,
            error=error,
            problem=problem,
        )
