"""Bisection of faults that are not certain: the error rate and the number of runs are as foretold."""

from __future__ import annotations

import random

import pytest

from cuwheel_lab.measuring import bisection
from cuwheel_lab.measuring.bisection import Found, Rates


def campaign(seed: int, candidates: int, rate: float, **options: float) -> tuple[Found, int]:
    """One that is simulated, and where its fault was planted."""
    dice = random.Random(seed)  # noqa: S311 - the same campaigns every time
    planted = dice.randint(1, candidates - 1)
    good = options.pop("flaky", 0.0)
    found = bisection.bisect(
        candidates,
        lambda candidate: dice.random() < (rate if candidate >= planted else good),
        error=0.05,
        good_rate=options.get("good_rate", 0.0),
        bad_rate=options.get("bad_rate"),
    )
    return found, planted


@pytest.mark.parametrize(
    ("rate", "options"),
    [
        (0.3, {"bad_rate": 0.3}),
        (0.3, {}),
        (0.78, {}),
        (1.0, {}),
        (0.4, {"bad_rate": 0.4, "good_rate": 0.05, "flaky": 0.05}),
    ],
)
def test_200_campaigns_err_no_more_often_than_foretold(rate: float, options: dict[str, float]) -> None:
    done = [campaign(seed, 64, rate, **options) for seed in range(200)]
    wrong = sum(found.first_bad != planted for found, planted in done)
    assert wrong <= 17, wrong  # 200 with an error of 5 %: more than that in one of a hundred test runs
    foretold = [found.foretold for found, _ in done if found.foretold]
    runs = [found.runs - (found.decisions[0].runs if "bad_rate" not in options else 0) for found, _ in done]
    assert 0.6 * sum(foretold) <= sum(runs) <= 1.3 * sum(foretold), (sum(foretold) / 200, sum(runs) / 200)


def test_a_sloppier_bisection_would_be_seen() -> None:
    """The same campaigns decided after a single run each: the test above can fail."""
    wrong = 0
    for seed in range(200):
        dice = random.Random(seed)  # noqa: S311
        planted = dice.randint(1, 63)
        low, high = 0, 63
        while high - low > 1:
            middle = (low + high) // 2
            bad = middle >= planted and dice.random() < 0.3
            low, high = (low, middle) if bad else (middle, high)
        wrong += high != planted
    assert wrong > 100


@pytest.mark.parametrize(("candidates", "expected"), [(2, 0), (3, 1), (5, 2), (9, 3), (64, 6), (65, 6)])
def test_steps(candidates: int, expected: int) -> None:
    assert bisection.steps(candidates) == expected


def test_a_bad_one_that_does_not_fail_is_said() -> None:
    found = bisection.bisect(9, lambda _: False, error=0.05)
    assert found.first_bad is None
    assert "0 of 300 runs" in found.problem


def test_a_good_one_that_fails_is_said() -> None:
    found = bisection.bisect(9, lambda _: True, error=0.05)
    assert found.first_bad is None
    assert "the good one fails too" in found.problem


def test_one_in_between_that_is_neither_is_said() -> None:
    dice = random.Random(1)  # noqa: S311
    chances = [0.02, 0.2, 0.9]
    problems = {
        bisection.bisect(
            3, lambda each: dice.random() < chances[each], error=1e-9, good_rate=0.1, bad_rate=0.33
        ).problem
        for _ in range(20)
    }
    assert "one in between fails more often than the good one and less often than the bad one" in problems


def test_of_a_certain_fault_one_run_decides() -> None:
    assert bisection.expected_runs(Rates(good=0.0, bad=1.0), 0.01) == (1.0, 1.0)
