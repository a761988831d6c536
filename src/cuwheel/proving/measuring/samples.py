"""Figures of speed: quantiles, and how much two sides differ beyond what chance does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Of blocks that were run side by side: Student's interval of the mean of their ratios' logarithms."""
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True) if a > 0 and b > 0]
    if not logs:
        return None
    mean, spread = _mean_and_error(logs)
    return _ratio(mean, spread, len(logs) - 1)


def welch_ratio(one: Sequence[float], other: Sequence[float]) -> Ratio | None:
    """Of blocks of two runs at different times: Welch's interval of the difference of the mean logarithms."""
    first, second = ([math.log(each) for each in side if each > 0] for side in (one, other))
    if not first or not second:
        return None
    (mean_1, error_1), (mean_2, error_2) = _mean_and_error(first), _mean_and_error(second)
    error = math.hypot(error_1, error_2)
    parts = sum(
        each**4 / (len(side) - 1) for each, side in ((error_1, first), (error_2, second)) if len(side) > 1 and each
    )
    return _ratio(mean_1 - mean_2, error, error**4 / parts if parts else min(len(first), len(second)) - 1)


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:  # noqa: PLR2004 - one value has no spread
        return mean, math.inf
    variance = math.fsum((each - mean) ** 2 for each in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def _ratio(mean: float, error: float, freedom: float) -> Ratio:
    if freedom < 1 or not math.isfinite(error):
        return Ratio(value=math.exp(mean), low=0.0, high=math.inf)
    reach = student_quantile(0.975, freedom) * error
    return Ratio(value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(min(mean + reach, 700.0)))


def student_quantile(chance: float, freedom: float) -> float:
    """Of Student's distribution, for a chance above one half."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, freedom) < chance else (low, middle)
    return (low + high) / 2


def _student(value: float, freedom: float) -> float:
    """The chance of less than a value that is not negative."""
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value)) / 2


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
