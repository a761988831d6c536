"""How often something fails, told from few runs: intervals, exact tests, and how many runs would tell more.

Plain Python: a table of trials is small, and cuwheel brings no numerical library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

from msgspec import Struct

Interval: TypeAlias = tuple[float, float]
Z_95 = 1.959963984540054  # the normal distribution's: 95 % lie within so many deviations
ALPHA = 0.05
_POWER = 0.8
_NEGLIGIBLE = 1e-25  # of a distribution's largest probability: beyond it nothing changes a p value anybody reads
_TIE = 1 + 1e-7  # probabilities that differ by rounding alone are equal
SMALLEST_P = 1e-16
_MOST_RUNS = 10_000


class Counts(NamedTuple):
    failures: int
    runs: int

    @property
    def rate(self) -> float:
        return self.failures / self.runs if self.runs else math.nan


def wilson(failures: int, runs: int, z: float = Z_95) -> Interval:
    """The rates that so many failures in so many runs go with (Wilson's score interval)."""
    if not runs:
        return (0.0, 1.0)
    rate = failures / runs
    middle = rate + z * z / (2 * runs)
    spread = z * math.sqrt(rate * (1 - rate) / runs + z * z / (4 * runs * runs))
    whole = 1 + z * z / runs
    low = 0.0 if failures == 0 else max(0.0, (middle - spread) / whole)
    return (low, 1.0 if failures == runs else min(1.0, (middle + spread) / whole))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _hypergeometric(one: Counts, other: Counts) -> tuple[int, list[float]]:
    """How the failures of both would fall on the first, were there no difference: the least, then probabilities."""
    failures, runs = one.failures + other.failures, one.runs + other.runs
    low, high = max(0, failures - other.runs), min(failures, one.runs)
    whole = _log_choose(runs, failures)
    found = [
        math.exp(_log_choose(one.runs, k) + _log_choose(other.runs, failures - k) - whole) for k in range(low, high + 1)
    ]
    return _trimmed(low, found)


def _trimmed(low: int, found: list[float]) -> tuple[int, list[float]]:
    least = max(found) * _NEGLIGIBLE
    first = next(index for index, each in enumerate(found) if each > least)
    last = next(index for index in range(len(found) - 1, -1, -1) if found[index] > least)
    return low + first, found[first : last + 1]


def exact_p(pairs: Iterable[tuple[Counts, Counts]]) -> float:
    """Two sides compared, in groups that are alike in all else: how likely a split as uneven as this is by chance.

    Of one pair it is Fisher's exact test, two-sided; of several the failures of the first side are added up, as in the
    exact test of Mantel and Haenszel, so that what differs between the groups is not taken for a difference of sides.
    """
    start, chances, observed = 0, [1.0], 0
    for one, other in pairs:
        low, found = _hypergeometric(one, other)
        start, observed = start + low, observed + one.failures
        chances = _convolved(chances, found)
        start, chances = _trimmed(start, chances)
    index = observed - start
    if not 0 <= index < len(chances):
        return SMALLEST_P
    limit = chances[index] * _TIE
    total = math.fsum(chances)
    return min(1.0, max(SMALLEST_P, math.fsum(each for each in chances if each <= limit) / total))


def _convolved(one: Sequence[float], other: Sequence[float]) -> list[float]:
    made = [0.0] * (len(one) + len(other) - 1)
    for index, each in enumerate(one):
        for offset, chance in enumerate(other):
            made[index + offset] += each * chance
    return made


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Corrected for their number: the chance that any of them is below a limit by luck stays below it (Holm)."""
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda each: each[1])):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        corrected[name] = highest
    return corrected


def spent(p: float, look: int) -> float:
    """A p value corrected for the number of times that one was looked at, counted from 1.

    The first look may be wrong in half of the cases that are allowed in all, each further one in half as many as the
    one before: together they stay below the limit, however long somebody goes on until something is found.
    """
    return min(1.0, p * 2.0**look)


def binomial_tail(k: int, n: int, rate: float) -> float:
    """The chance of k or more failures in n runs."""
    if k <= 0:
        return 1.0
    if k > n or rate <= 0:
        return 0.0
    if rate >= 1:
        return 1.0
    log_rate, log_rest = math.log(rate), math.log1p(-rate)
    return min(1.0, math.fsum(math.exp(_log_choose(n, i) + i * log_rate + (n - i) * log_rest) for i in range(k, n + 1)))


def lower_bound(failures: int, runs: int, alpha: float) -> float:
    """The rate that is exceeded with a confidence of 1 - alpha (Clopper and Pearson), also where the runs ended with
    the last of so many failures.
    """
    low, high = 0.0, failures / runs if runs else 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(failures, runs, middle) < alpha else (low, middle)
    return low


def runs_to_tell(one: float, other: float, alpha: float = ALPHA) -> int | None:
    """How many runs of each side tell two rates apart, in 80 of 100 cases.

    By Casagrande, Pike and Smith, for Fisher's test. None where they are too close for any number that one would run.
    """
    gap = abs(one - other)
    if gap < 1 / _MOST_RUNS:
        return None
    z_alpha, z_power = normal_quantile(1 - alpha / 2), normal_quantile(_POWER)
    mean = (one + other) / 2
    spread = math.sqrt(2 * mean * (1 - mean)), math.sqrt(one * (1 - one) + other * (1 - other))
    plain = (z_alpha * spread[0] + z_power * spread[1]) ** 2 / gap**2
    runs = math.ceil(plain / 4 * (1 + math.sqrt(1 + 4 / (plain * gap))) ** 2)
    return runs if runs <= _MOST_RUNS else None


def runs_without_failure(most: float) -> int:
    """How many runs without a failure bring the upper end of the interval down to a rate."""
    return math.ceil(Z_95**2 * (1 - most) / most)


normal_quantile = NormalDist().inv_cdf  # the value below which a normal deviate lies with a chance


# Figures of speed: quantiles, and how much two sides differ beyond what chance does.

_ROUNDS = 300
_TINY = 1e-300


class Ratio(Struct, frozen=True, kw_only=True):
    """How many times as much one side is as the other, with the interval at 95 %."""

    value: float
    low: float
    high: float


def quantile(values: Sequence[float], share: float) -> float:
    """Between two values by their distance; `values` are sorted."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def paired_ratio(one: Sequence[float], other: Sequence[float]) -> Ratio | None:
    """The ratio of blocks that were run side by side: Student's interval of the mean of their ratios' logarithms."""
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True) if a > 0 and b > 0]
    if not logs:
        return None
    mean, spread = _mean_and_error(logs)
    return _ratio_with_interval(mean, spread, len(logs) - 1)


def welch_ratio(one: Sequence[float], other: Sequence[float]) -> Ratio | None:
    """The ratio of blocks of two runs at different times: Welch's interval of the difference of the mean logarithms."""
    first, second = ([math.log(each) for each in side if each > 0] for side in (one, other))
    if not first or not second:
        return None
    (mean_1, error_1), (mean_2, error_2) = _mean_and_error(first), _mean_and_error(second)
    error = math.hypot(error_1, error_2)
    parts = sum(
        each**4 / (len(side) - 1) for each, side in ((error_1, first), (error_2, second)) if len(side) > 1 and each
    )
    return _ratio_with_interval(mean_1 - mean_2, error, error**4 / parts if parts else min(len(first), len(second)) - 1)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return mean, math.inf
    variance = math.fsum((each - mean) ** 2 for each in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def _ratio_with_interval(mean: float, error: float, freedom: float) -> Ratio:
    if freedom < 1 or not math.isfinite(error):
        return Ratio(value=math.exp(mean), low=0.0, high=math.inf)
    reach = student_quantile(0.975, freedom) * error
    return Ratio(value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(min(mean + reach, 700.0)))


def student_quantile(chance: float, freedom: float) -> float:
    """The quantile of Student's distribution, for a chance above one half."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        below = 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + middle * middle)) / 2
        low, high = (middle, high) if below < chance else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _fraction(b, a, 1 - x) * front / b
    return _fraction(a, b, x) * front / a


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for each in (even, odd):
            d = 1 / _not_zero(1 + each * d)
            c = _not_zero(1 + each / c)
            found *= c * d
        if abs(c * d - 1) < 1e-15:  # noqa: PLR2004 - as near as numbers get
            break
    return found


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
