"""Quantiles and intervals of speed, against scipy's and by simulation."""

from __future__ import annotations

import math
import random

import pytest

from cuwheel_lab.measuring import rates

scipy = pytest.importorskip("scipy.stats", reason="scipy does not load under Wine: its C library lacks functions")

DICE = random.Random(4)  # noqa: S311 - the same figures every time


def test_quantiles() -> None:
    values = sorted(DICE.random() for _ in range(101))
    assert rates.quantile(values, 0.5) == values[50]
    assert rates.quantile(values, 0.95) == pytest.approx(values[95])
    assert rates.quantile([3.0], 0.99) == 3.0
    assert rates.quantile([1.0, 2.0], 0.25) == 1.25


@pytest.mark.parametrize("freedom", [1, 2, 3, 4.7, 9, 30, 200])
def test_students_quantiles(freedom: float) -> None:
    for chance in (0.6, 0.9, 0.975, 0.995):
        assert rates.student_quantile(chance, freedom) == pytest.approx(scipy.t.ppf(chance, freedom), rel=1e-8)


def test_the_interval_of_pairs_is_students() -> None:
    one, other = ([DICE.uniform(1, 2) for _ in range(6)] for _ in range(2))
    found = rates.paired_ratio(one, other)
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    theirs = scipy.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    assert found
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((theirs.low, theirs.high))


def test_the_interval_of_two_runs_is_welchs() -> None:
    one, other = [DICE.uniform(1, 2) for _ in range(5)], [DICE.uniform(1, 3) for _ in range(8)]
    found = rates.welch_ratio(one, other)
    logs = [[math.log(each) for each in side] for side in (one, other)]
    theirs = scipy.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    assert found
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((theirs.low, theirs.high))


def test_what_has_no_spread_says_nothing() -> None:
    lone = rates.paired_ratio([2.0], [1.0])
    assert lone
    assert (lone.value, lone.low, lone.high) == (2.0, 0.0, math.inf)
    assert rates.paired_ratio([0.0], [1.0]) is None
    assert rates.welch_ratio([], [1.0]) is None
    same = rates.welch_ratio([1.0, 1.0], [1.0, 1.0])
    assert same
    assert (same.low, same.high) == (1.0, 1.0)


def test_drift_that_hits_both_alike_is_no_difference() -> None:
    """A machine that slows down by half: side by side the ratio stays, one after the other it does not."""
    speed = [1 - 0.5 * step / 20 for step in range(20)]
    one, other = ([each * DICE.uniform(0.98, 1.02) for each in side] for side in (speed[::2], speed[1::2]))
    paired = rates.paired_ratio(one, other)
    apart = rates.welch_ratio([*speed[:10]], [*speed[10:]])
    assert paired
    assert apart
    assert paired.value == pytest.approx(1.03, abs=0.05)
    assert apart.value > 1.3
