"""Work that Python cannot do beside itself, divided among copies of this process."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Result = TypeVar("Result")
    Item = TypeVar("Item")

_MOST = 8  # beyond that they wait for the disk


def each(work: Callable[[Item], Result], items: Sequence[Item], prepare: Callable[[], None]) -> list[Result]:
    """`work` of every item, in their order. Give the longest first.

    `work` is a function of a module, and its results are small: they travel between processes. One after the other
    where there is one processor, and where other threads live, which a copy would not have. `prepare` is called in
    each copy first.
    """
    workers = min(len(items), _processors(), _MOST)
    if workers > 1 and sys.platform == "linux" and threading.active_count() == 1:
        from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - needed here alone

        # A copy was killed, or its error could not travel: met again below.
        with contextlib.suppress(BrokenProcessPool):
            return _divided(work, items, workers, prepare)
    return [work(item) for item in items]


def _divided(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, prepare: Callable[[], None]
) -> list[Result]:
    import multiprocessing  # noqa: PLC0415
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, _begin, (prepare,)) as pool:
        return list(pool.map(work, items))


def _begin(prepare: Callable[[], None]) -> None:
    """In a copy: who is interrupted is the first process, for all of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
