"""Whether jobs are compiled in shares: where that pays, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.building import shares
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.request import BuildRequest
    from cuwheel.verdicts.planning.plan import Job as PlanJob


class Choice(Struct, frozen=True, kw_only=True):
    by_shares: bool
    findings: tuple[Finding, ...] = ()


def on_cluster(request: BuildRequest, planned: Sequence[PlanJob], slots: int) -> Choice:
    """`slots`: builds that the workers can run at once."""
    most = max((len(shares.of_plan(each)) for each in planned), default=0)
    if request.shares is not None:
        return Choice(by_shares=request.shares)
    if "container" in request.providers:
        return Choice(by_shares=False)
    count = len(planned)
    if most <= 1 or slots <= count:
        wheels = "1 wheel keeps" if count == 1 else f"{count} wheels keep"
        workers = "the only worker" if slots == 1 else f"{slots} workers"
        why = "one architecture each" if most <= 1 else f"{wheels} {workers} busy as they are"
        return Choice(by_shares=False, findings=(_finding(f"each wheel is compiled whole: {why}"),))
    why = f"{count} {'wheel' if count == 1 else 'wheels'} would leave {slots - count} of {slots} workers idle"
    return Choice(by_shares=True, findings=(_finding(f"compiled by architecture: {why}"),))


def here(request: BuildRequest, names: Sequence[str], kept: Sequence[str]) -> Choice:
    """On this machine. `names`: of the shares of a job, `kept`: those that the cache has.

    Without a cache nvcc's own threads are as good, and one build for all is less work.
    """
    if request.shares is not None:
        return Choice(by_shares=request.shares)
    if len(names) > 1 and len(kept) * 2 > len(names):
        why = f"{len(kept)} of {len(names)} architectures are in the cache"
        return Choice(by_shares=True, findings=(_finding(f"compiled by architecture: {why}"),))
    return Choice(by_shares=False)


def _finding(message: str) -> Finding:
    return Finding(rule="shares-chosen", severity="note", message=message)
