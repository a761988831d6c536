"""The statistics against scipy's, and what they make of journals."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from campaigns import header, written
from msgspec.structs import replace

from cuwheel_lab.measuring import analysis, rates
from cuwheel_lab.measuring.rates import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cuwheel_lab.measuring.journal import Outcome

scipy = pytest.importorskip("scipy.stats", reason="scipy does not load under Wine: its C library lacks functions")

DICE = random.Random(21)  # noqa: S311 - the same tables every time


def table(most: int) -> tuple[Counts, Counts]:
    one, other = (Counts(DICE.randint(0, runs), runs) for runs in (DICE.randint(1, most), DICE.randint(1, most)))
    return one, other


@pytest.mark.parametrize("most", [3, 10, 40, 400, 3000])
def test_the_exact_test_is_fishers(most: int) -> None:
    for _ in range(200 if most <= 400 else 20):
        one, other = table(most)
        theirs = scipy.fisher_exact(
            [[one.failures, one.runs - one.failures], [other.failures, other.runs - other.failures]]
        ).pvalue
        assert rates.exact_p([(one, other)]) == pytest.approx(max(theirs, rates.SMALLEST_P), rel=1e-6, abs=1e-15)


def test_within_groups_the_failures_of_a_side_are_added_up() -> None:
    """Against a count of every way in which the failures may fall, for groups small enough."""
    for _ in range(50):
        pairs = [table(4) for _ in range(3)]
        chances = {0: 1.0}
        for one, other in pairs:
            law = scipy.hypergeom(one.runs + other.runs, one.failures + other.failures, one.runs)
            chances = _sum(chances, {k: float(law.pmf(k)) for k in range(one.runs + 1)})
        seen = chances[sum(one.failures for one, _ in pairs)]
        expected = sum(each for each in chances.values() if each <= seen * (1 + 1e-7))
        assert rates.exact_p(pairs) == pytest.approx(expected, rel=1e-6)


def _sum(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    made: dict[int, float] = {}
    for first, chance in one.items():
        for second, more in other.items():
            made[first + second] = made.get(first + second, 0.0) + chance * more
    return made


def test_the_interval_is_wilsons() -> None:
    for _ in range(300):
        runs = DICE.randint(1, 2000)
        failures = DICE.choice([0, runs, DICE.randint(0, runs)])
        theirs = scipy.binomtest(failures, runs).proportion_ci(0.95, method="wilson")
        assert rates.wilson(failures, runs) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_the_lower_bound_is_clopper_and_pearsons() -> None:
    for _ in range(30):
        runs = DICE.randint(1, 100)
        failures = DICE.randint(0, runs)
        theirs = scipy.binomtest(failures, runs, alternative="greater").proportion_ci(0.99, method="exact")
        assert rates.lower_bound(failures, runs, 0.01) == pytest.approx(theirs.low, abs=1e-9)


def test_normal_quantiles() -> None:
    for chance in (0.001, 0.025, 0.2, 0.5, 0.8, 0.975, 0.9999):
        assert rates.normal_quantile(chance) == pytest.approx(scipy.norm.ppf(chance), abs=1e-9)


def test_the_correction_is_holms() -> None:
    assert rates.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert rates.holm({"a": 0.9, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert rates.holm({}) == {}


@pytest.mark.parametrize(("one", "other"), [(0.0, 0.78), (0.1, 0.5), (0.3, 0.45)])
def test_the_runs_foretold_have_the_power_foretold(one: float, other: float) -> None:
    runs = rates.runs_to_tell(one, other)
    assert runs is not None

    def power(count: int) -> float:
        found = 0
        for _ in range(400):
            sides = [Counts(sum(DICE.random() < rate for _ in range(count)), count) for rate in (one, other)]
            found += rates.exact_p([(sides[0], sides[1])]) < rates.ALPHA
        return found / 400

    assert power(runs) > 0.72
    assert power(max(2, runs // 2)) < 0.8


def test_case_3(tmp_path: Path) -> None:
    """0 of 29 warm and 7 of 9 cold: what that says, and what it does not."""
    trials: list[tuple[int, Outcome | None]] = [
        (int(number >= 9), "machine" if number < 7 else "passed") for number in range(38)
    ]
    folder = written(
        tmp_path / "j", header({"start": ("cold", "warm")}, [{"start": "cold"}, {"start": "warm"}], 9), trials
    )
    found = analysis.analyse(folder)
    assert [(each.failures, each.runs) for each in found.groups] == [(7, 9), (0, 29)]
    (effect,) = found.effects
    assert effect.verdict == "prevents"
    assert effect.prevented_by == ("warm",)
    assert effect.p < 0.0001
    assert "a rate up to 12 % is not ruled out" in effect.says
    assert "6 more runs of cold would tell 78 % from 50 %." in found.unknown
    assert "start warm: 0 of 29. 44 more without a failure would bring that below 5 %." in found.unknown


def test_a_difference_between_groups_is_not_taken_for_one_of_the_axis(tmp_path: Path) -> None:
    """Where B was run mostly on the machine that fails, B looks bad; within each machine it does not."""
    axes = {"version": ("a", "b"), "machine": ("good", "bad")}
    conditions = [{"version": v, "machine": m} for v in "ab" for m in ("good", "bad")]
    trials: list[tuple[int, Outcome | None]] = []
    for condition, runs, failures in ((0, 40, 0), (1, 4, 2), (2, 4, 0), (3, 40, 20)):
        trials += [(condition, "status" if number < failures else "passed") for number in range(runs)]
    found = {
        each.axis: each
        for each in analysis.analyse(written(tmp_path / "j", header(axes, conditions, 4), trials)).effects
    }
    assert found["version"].p > 0.5
    assert found["version"].sides[1].failures == 20
    assert found["machine"].verdict == "prevents"


def test_where_one_axis_is_changed_at_a_time_like_is_compared_with_like(tmp_path: Path) -> None:
    """What failed under other conditions says nothing about an axis that was not changed there."""
    axes = {"start": ("cold", "warm"), "compute": ("half", "float")}
    conditions = [
        {"start": "cold", "compute": "half"},
        {"start": "warm", "compute": "half"},
        {"start": "cold", "compute": "float"},
    ]
    trials: list[tuple[int, Outcome | None]] = []
    for condition, failures in ((0, 8), (1, 0), (2, 9)):
        trials += [(condition, "signal" if number < failures else "passed") for number in range(10)]
    found = {
        each.axis: each for each in analysis.analyse(written(tmp_path / "j", header(axes, conditions), trials)).effects
    }
    assert [(side.failures, side.runs) for side in found["compute"].sides] == [(8, 10), (9, 10)]
    assert found["compute"].verdict == "not decided"
    assert [(side.failures, side.runs) for side in found["start"].sides] == [(8, 10), (0, 10)]
    assert found["start"].verdict == "prevents"


@pytest.mark.parametrize("going_on", ["ten more", "one more", "as many as it says"])
def test_going_on_until_decided_claims_nothing_too_often(going_on: str) -> None:
    """Both values fail equally often, and somebody goes on until the verdict is another: 400 times."""
    dice = random.Random(7)  # noqa: S311 - the same campaigns every time
    plan = header({"a": ("x", "y")}, [{"a": "x"}, {"a": "y"}])
    claims = 0
    for _ in range(400):
        failures, runs, more = [0, 0], 0, 10
        for look in range(1, 13):
            runs += more
            failures = [each + sum(dice.random() < 0.3 for _ in range(more)) for each in failures]
            counts = {number: Counts(each, runs) for number, each in enumerate(failures)}
            (effect,) = analysis.effects_of_axes(plan, counts, {}, analysis.Stage(look=look))
            if effect.verdict in ("prevents", "matters"):
                claims += 1
            if effect.verdict != "not decided" or runs > 500:
                break
            more = {"ten more": 10, "one more": 1}.get(going_on) or min(effect.more_runs or 20, 200)
    assert claims <= 400 * rates.ALPHA


def test_a_difference_is_found_though_somebody_looked_twice() -> None:
    plan = header({"a": ("x", "y")}, [{"a": "x"}, {"a": "y"}])
    for look in (1, 2, 3):
        counts = {0: Counts(2, 20 * look), 1: Counts(14 * look, 20 * look)}
        (effect,) = analysis.effects_of_axes(plan, counts, {}, analysis.Stage(look=look))
        assert effect.verdict == "matters"


def test_looks_are_counted_from_the_journal(tmp_path: Path) -> None:
    """Another plan after runs is another look; the same one, after a crash, is not. Nothing is judged halfway."""
    plan = header({"a": ("x", "y")}, [{"a": "x"}, {"a": "y"}], 10)
    first: list[tuple[int, Outcome | None]] = [(0, "status"), (1, "passed")]
    folder = written(tmp_path / "j", plan, first * 9)
    found = analysis.analyse(folder)
    assert (found.look, found.done, found.effects[0].verdict) == (1, False, "not decided")
    assert "judged when all planned runs are done" in found.effects[0].says
    more = (folder / "journal.jsonl").read_bytes()
    rest = written(tmp_path / "rest", plan, first).joinpath("journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(more + rest)
    found = analysis.analyse(folder)
    assert (found.look, found.done, found.effects[0].verdict) == (1, True, "prevents")
    longer = written(tmp_path / "longer", replace(plan, repeats=11), first).joinpath("journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(more + rest + longer)
    again = analysis.analyse(folder)
    assert (again.look, again.done) == (2, True)
    assert again.effects[0].p == pytest.approx(again.effects[0].p_plain * 4)


def test_rates_that_are_close_are_told_by_their_interval() -> None:
    plan = header({"a": ("x", "y")}, [{"a": "x"}, {"a": "y"}])
    (effect,) = analysis.effects_of_axes(plan, {0: Counts(4, 100), 1: Counts(10, 100)}, {}, analysis.Stage())
    assert effect.verdict == "close"
    assert effect.says.endswith("y fails -4 to +16 points more often.")


def test_no_failure_is_no_proof(tmp_path: Path) -> None:
    found = analysis.analyse(written(tmp_path / "j", header({}, [{}]), [(0, "passed")] * 20))
    assert found.effects == ()
    assert found.unknown == (
        (
            "No failure in 20 runs: a rate up to 16.1 % is not ruled out. "
            "53 more without a failure would bring that below 5 %."
        ),
    )


def test_ten_thousand_trials_in_one_pass(tmp_path: Path) -> None:
    axes = dict.fromkeys("abcd", ("0", "1"))
    conditions = [{name: str(number >> bit & 1) for bit, name in enumerate("abcd")} for number in range(16)]
    trials: list[tuple[int, Outcome | None]] = []
    for _ in range(10_000):
        condition = DICE.randrange(16)
        trials.append((condition, "signal" if condition % 4 == 0 and DICE.random() < 0.3 else "passed"))
    folder = tmp_path / "j"
    folder.mkdir()
    lines = _lines(axes, conditions, trials)
    (folder / "journal.jsonl").write_bytes(lines)
    began = time.process_time()
    found = analysis.analyse(folder)
    assert time.process_time() - began < 10
    assert found.runs == 10_000
    assert {each.axis: each.verdict for each in found.effects} == {
        "a": "prevents", "b": "prevents", "c": "close", "d": "close"
    }  # fmt: skip


def _lines(
    axes: Mapping[str, tuple[str, ...]], conditions: list[dict[str, str]], trials: list[tuple[int, Outcome | None]]
) -> bytes:
    """As `written` would make them, without ten thousand waits for the disk."""
    from campaigns import COLD

    from cuwheel.support import codec
    from cuwheel_lab.measuring.journal import End, Line, Start

    made = [Line(header=header(axes, conditions))]
    for number, (condition, outcome) in enumerate(trials):
        assert outcome
        made.append(Line(start=Start(trial=number, condition=condition, repeat=number, at=1.0, boot="one", cold=COLD)))
        made.append(Line(end=End(trial=number, outcome=outcome, at=2.0, seconds=1.0)))
    return b"".join(codec.encode(each) + b"\n" for each in made)
