"""The engine on many libraries at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cuwheel.changes.slim import proposal
from cuwheel.changes.slim.outcome import FileChange
from cuwheel.support import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuwheel.changes.binaries.decisions import FileResult, LibraryPlan
    from cuwheel.changes.slim.proposal import Proposal

# Two at a time keep the disk and a core busy; the engine itself compresses with all cores.
_WORKERS = 2


def each_of(
    plans: Sequence[LibraryPlan], act: Callable[[LibraryPlan], FileResult], *, label: str = "slimming"
) -> list[FileResult]:
    """`act` on every plan, in the order given. The first error stops those that have not begun."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    lock = threading.Lock()
    with log.progress(label, sum(plan.bytes_before for plan in plans)) as progress:

        def work(plan: LibraryPlan) -> FileResult:
            result = act(plan)
            with lock:
                progress.advance(plan.bytes_before)
            return result

        with ThreadPoolExecutor(_WORKERS) as pool:
            futures = [pool.submit(work, plan) for plan in plans]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def files_of(plan: Proposal, results: Sequence[FileResult]) -> tuple[FileChange, ...]:
    """Every library of the plan: what became of it."""
    done = {result.path: change_of(result) for result in results}
    kept = [done.get(path) or unchanged(each) for path, each in plan.plans.items()]
    return proposal.in_order([*kept, *proposal.removals(plan)])


def change_of(result: FileResult, path: str | None = None) -> FileChange:
    return FileChange(
        path=path or result.path,
        fate="slimmed" if result.written else "unchanged",
        bytes_before=result.bytes_before,
        bytes_after=result.bytes_after if result.written else result.bytes_before,
        dropped=result.dropped if result.written else (),
        recompressed=result.recompressed if result.written else (),
    )


def unchanged(plan: LibraryPlan) -> FileChange:
    return FileChange(path=plan.path, fate="unchanged", bytes_before=plan.bytes_before, bytes_after=plan.bytes_before)
