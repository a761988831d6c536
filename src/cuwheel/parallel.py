"""Work that Python cannot do beside itself, divided among copies of this process."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Result = TypeVar("Result")
    Item = TypeVar("Item")

_MOST = 8  # beyond that they wait for the disk


def each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`work` of every item, in their order. Give the longest first.

    `work` is a function of a module, and its results are small: they travel between processes. One after the other
    where there is one processor, and where other threads live, which a copy would not have.
    """
    workers = min(len(items), _processors(), _MOST)
    if workers < 2 or sys.platform != "linux" or threading.active_count() > 1:  # noqa: PLR2004
        return [work(item) for item in items]
    import multiprocessing  # noqa: PLC0415 - needed here alone
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(work, items))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
