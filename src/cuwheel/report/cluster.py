"""`cuwheel cluster status`, `stop`, `worker` and `scheduler`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.clusters.overview import WorkerState
from cuwheel.report.document import Column, Document, Heading, Paragraph, Table
from cuwheel.support.wording import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.report.document import Block


class Cluster(Struct, frozen=True, kw_only=True):
    """`stopped`: it was ended, and these were its workers."""

    schema: Literal["cuwheel.cluster/1"] = "cuwheel.cluster/1"
    address: str
    workers: tuple[WorkerState, ...]
    stopped: bool = False

    @property
    def succeeded(self) -> bool:
        """False where there is nobody to work."""
        return self.stopped or any(not each.problem for each in self.workers)


def of_overview(address: str, workers: Sequence[WorkerState], *, stopped: bool = False) -> Cluster:
    return Cluster(address=address, workers=tuple(workers), stopped=stopped)


def document(answer: Cluster, *, verbose: bool) -> Document:
    return Document("cuwheel cluster", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Cluster, *, verbose: bool) -> Iterator[Block]:
    count = f"{len(answer.workers)} {'worker' if len(answer.workers) == 1 else 'workers'}"
    cores = sum(each.cores for each in answer.workers)
    yield Heading(f"{answer.address}: {'stopped' if answer.stopped else f'{count}, {cores} cores'}")
    if answer.workers:
        columns = ["worker", "host", "cores", "memory", "cuwheel", "C library", "runs"]
        rows = tuple(
            (
                each.name or each.address,
                each.host,
                str(each.cores or ""),
                size(each.memory) if each.memory else "",
                each.cuwheel,
                each.libc,
                "\n".join(each.running) or each.problem,
            )
            for each in answer.workers
        )
        yield Table(tuple(Column(each) for each in columns), rows)
    elif not answer.stopped:
        yield Paragraph("Nobody works there. Start a worker: cuwheel cluster worker ADDRESS")
    if verbose and any(not each.apart for each in answer.workers if not each.problem):
        yield Paragraph(
            "Where namespaces are not allowed, shares of one wheel wait for each other on the same machine."
        )
