"""Work that Python cannot do beside itself, divided among copies of this process."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Result = TypeVar("Result")
    Item = TypeVar("Item")

_MOST = 8  # beyond that they wait for the disk
_NUMBER = 4
_MANY = 1 << 12  # numbers of items, as many as surely fit a pipe


def each(work: Callable[[Item], Result], items: Sequence[Item], prepare: Callable[[], None]) -> list[Result]:
    """`work` of every item, in their order. Give the longest first.

    Results are small: they travel between processes. One after the other where there is one processor, and where
    other threads live, which a copy would not have. `prepare` is called in each copy first. What a copy could not
    do, because it was killed or failed, is done again here, where its error is met.
    """
    workers = min(len(items), _processors(), _MOST)
    alone = workers <= 1 or sys.platform != "linux" or threading.active_count() > 1 or len(items) > _MANY
    done = {} if alone else _divided(work, items, workers, prepare)
    return [done[number] if number in done else work(item) for number, item in enumerate(items)]


def _divided(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, prepare: Callable[[], None]
) -> dict[int, Result]:
    """Plain forks and pipes: the pools of Python's library wait for ever for some copies that die."""
    waiting, numbers = os.pipe()
    for number in range(len(items)):
        os.write(numbers, number.to_bytes(_NUMBER, "little"))
    os.close(numbers)
    copies = []
    for _ in range(workers):
        results, sink = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(results)
            _work(work, items, prepare, waiting, sink)
        os.close(sink)
        copies.append((child, results))
    os.close(waiting)
    return _collected(copies)


def _work(
    work: Callable[[Item], Result], items: Sequence[Item], prepare: Callable[[], None], waiting: int, sink: int
) -> None:
    """In a copy: the next item that nobody has taken, until there are none. It never returns."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted is the first process, for all of them
        prepare()
        with os.fdopen(sink, "wb") as results:
            while taken := os.read(waiting, _NUMBER):
                number = int.from_bytes(taken, "little")
                pickle.dump((number, work(items[number])), results)
                results.flush()
    finally:
        os._exit(0)


def _collected(copies: Sequence[tuple[int, int]]) -> dict[int, Result]:
    found: dict[int, Result] = {}
    try:
        for _, results in copies:
            with os.fdopen(results, "rb") as stream, contextlib.suppress(EOFError, pickle.UnpicklingError):
                while True:
                    number, result = pickle.load(stream)  # noqa: S301 - from a copy of ourselves
                    found[number] = result
    except BaseException:
        for child, _ in copies:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        for child, _ in copies:
            os.waitpid(child, 0)
    return found


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
