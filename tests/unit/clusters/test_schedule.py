"""Who does what next: every task once, nobody overloaded, and not much longer than any schedule must be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwheel.clusters import schedule
from cuwheel.clusters.schedule import Slot, Waiting
from cuwheel.clusters.task import Task


def task(name: str, seconds: float | None = None, *, cores: int = 1, memory: int = 0) -> Task:
    return Task(id=name, function="cuwheel.x:y", parameters="", seconds=seconds, cores=cores, memory=memory)


def slot(name: str, cores: int = 1, memory: int = 10) -> Slot:
    return Slot(name=name, cores=cores, memory=memory)


def test_the_longest_goes_first_and_what_nobody_timed_before_it() -> None:
    waiting = [Waiting(task=task("short", 1)), Waiting(task=task("long", 9)), Waiting(task=task("unknown"))]
    assert [(each.task.id, name) for each, name in schedule.assign(waiting, [slot("a")])] == [("unknown", "a")]
    assert [each.task.id for each in schedule.longest_first(waiting)] == ["unknown", "long", "short"]


def test_a_worker_that_failed_at_a_task_is_not_given_it_again() -> None:
    waiting = [Waiting(task=task("x"), avoid=frozenset(["a"]))]
    assert list(schedule.assign(waiting, [slot("a")])) == []
    assert [name for _, name in schedule.assign(waiting, [slot("a"), slot("b")])] == ["b"]


def test_cores_and_memory_bound_what_runs_at_once() -> None:
    waiting = [Waiting(task=task(str(number), cores=2, memory=4)) for number in range(5)]
    by_cores = list(schedule.assign(waiting, [slot("a", cores=5, memory=100)]))
    by_memory = list(schedule.assign(waiting, [slot("a", cores=100, memory=13)]))
    assert (len(by_cores), len(by_memory)) == (2, 3)


def test_a_task_too_large_for_any_worker_takes_all_of_the_largest() -> None:
    workers = [slot("small", 1, 5), slot("large", 4, 5)]
    found = schedule.fitted(task("x", cores=8, memory=9), workers)
    assert (found.cores, found.memory) == (4, 5)
    assert schedule.fitted(task("x", cores=4, memory=5), workers).cores == 4


def test_a_task_that_is_to_be_alone_takes_a_whole_worker_however_large() -> None:
    alone = Task(id="alone", function="cuwheel.x:y", parameters="", alone=True)
    busy = Slot(name="busy", cores=7, memory=9, idle=False)
    assert list(schedule.assign([Waiting(task=alone)], [busy])) == []
    both = [Waiting(task=alone), Waiting(task=task("other"))]
    found = [(each.task.id, name) for each, name in schedule.assign(both, [busy, slot("idle", 2)])]
    assert found == [("alone", "idle"), ("other", "busy")]
    assert len(list(schedule.assign(both[::-1], [slot("idle", 2)]))) == 1


def test_who_may_not_run_a_task_is_not_asked() -> None:
    waiting = [Waiting(task=task("x"))]
    assert list(schedule.assign(waiting, [slot("a")], lambda _task, name: name != "a")) == []


@given(
    seconds=st.lists(st.floats(0.1, 100), min_size=1, max_size=60),
    workers=st.integers(1, 12),
)
def test_no_schedule_is_a_third_longer_than_it_must_be(seconds: list[float], workers: int) -> None:
    """Graham's bound for the longest first: 4/3 of the best, which is no shorter than ours."""
    tasks = [task(str(number), each) for number, each in enumerate(seconds)]
    took = schedule.simulated(tasks, [slot(str(number)) for number in range(workers)])
    least = schedule.bound(seconds, workers)
    assert least <= took + 1e-9
    # The bound may itself be below the best schedule, by one task at most.
    assert took <= sum(seconds) / workers + max(seconds) * (1 - 1 / workers) + 1e-6


def test_what_no_worker_can_hold_is_said() -> None:
    with pytest.raises(ValueError, match="no worker is large enough"):
        schedule.simulated([task("x", 1, cores=4)], [slot("a", cores=2)])
