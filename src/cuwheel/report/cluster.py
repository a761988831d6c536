"""`cuwheel cluster status`, `stop`, `worker` and `scheduler`: the document of their answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Column, Document, Heading, Paragraph, Table
from cuwheel.support.wording import size

if TYPE_CHECKING:
    from cuwheel.clusters.roster import Cluster


def document(answer: Cluster, *, verbose: bool) -> Document:
    return Document("cuwheel cluster", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Cluster, *, verbose: bool) -> Iterator[Block]:
    count = f"{len(answer.workers)} {'worker' if len(answer.workers) == 1 else 'workers'}"
    cores = sum(each.cores for each in answer.workers)
    yield Heading(f"{answer.address}: {'stopped' if answer.stopped else f'{count}, {cores} cores'}")
    if answer.workers:
        columns = ["worker", "host", "cores", "memory", "cuwheel", "C library", "has", "runs"]
        rows = tuple(
            (
                each.name or each.address,
                each.host,
                str(each.cores or ""),
                size(each.memory) if each.memory else "",
                each.cuwheel,
                each.libc,
                "\n".join(each.tags),
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
