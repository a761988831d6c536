"""Who does what next: pure, so that the engine and a simulation decide alike."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Slot(Struct, frozen=True, kw_only=True):
    """A worker and what of it is free. `idle`: all of it."""

    name: str
    cores: int
    memory: int
    idle: bool = True


class Waiting(Struct, frozen=True, kw_only=True):
    """`avoid`: workers that failed at it."""

    task: Task
    avoid: frozenset[str] = frozenset()


def longest_first(waiting: Iterable[Waiting]) -> list[Waiting]:
    """What nobody has timed may be long, and goes first; ties stay in their order."""
    return sorted(waiting, key=lambda each: -(math.inf if each.task.seconds is None else each.task.seconds))


def assign(
    waiting: Sequence[Waiting], slots: Sequence[Slot], usable: Callable[[Task, str], bool] = lambda _task, _name: True
) -> Iterator[tuple[Waiting, str]]:
    """Tasks for workers that have room now. The longest first, each to the worker with the most cores free.

    `usable`: whether a worker may run a task at all.
    """
    free = {each.name: [each.cores, each.memory] for each in slots}
    idle = {each.name for each in slots if each.idle}
    for each in longest_first(waiting):
        if not any(cores > 0 for cores, _ in free.values()):
            return
        fitting = [
            name
            for name, (cores, memory) in free.items()
            if name not in each.avoid and cores >= each.task.cores and memory >= each.task.memory
            if name in idle or not each.task.alone
            if usable(each.task, name)
        ]
        if fitting:
            chosen = max(fitting, key=lambda name: free[name][0])
            free[chosen][0] -= free[chosen][0] if each.task.alone else each.task.cores
            free[chosen][1] -= each.task.memory
            idle.discard(chosen)
            yield each, chosen


def simulated(tasks: Sequence[Task], workers: Sequence[Slot], overhead: float = 0.0) -> float:
    """Seconds until all are done, each taking its own `seconds` and `overhead` for sending and fetching."""
    waiting = [Waiting(task=each) for each in tasks]
    free = {each.name: [each.cores, each.memory] for each in workers}
    running: list[tuple[float, int, str, Task]] = []
    numbers = itertools.count()
    now = 0.0
    while waiting or running:
        slots = [Slot(name=name, cores=cores, memory=memory) for name, (cores, memory) in free.items() if cores]
        begun: set[int] = set()
        for each, name in assign(waiting, slots):
            begun.add(id(each))
            free[name][0] -= each.task.cores
            free[name][1] -= each.task.memory
            heapq.heappush(running, (now + (each.task.seconds or 0.0) + overhead, next(numbers), name, each.task))
        waiting = [each for each in waiting if id(each) not in begun]
        if not running:
            raise ValueError("no worker is large enough for what is left")
        now, _, name, task = heapq.heappop(running)
        free[name][0] += task.cores
        free[name][1] += task.memory
    return now


def bound(seconds: Sequence[float], workers: int) -> float:
    """No schedule is shorter."""
    return max(max(seconds, default=0.0), sum(seconds) / workers)


def fitted(task: Task, workers: Sequence[Slot]) -> Task:
    """A task that wants more than the largest worker has takes all of that one."""
    if any(each.cores >= task.cores and each.memory >= task.memory for each in workers) or not workers:
        return task
    largest = max(workers, key=lambda each: (each.cores, each.memory))
    return replace(task, cores=min(task.cores, largest.cores), memory=min(task.memory, largest.memory))
