"""`cuwheel cluster status`, `stop`, `worker`, `scheduler` and `init`: the documents of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph
from cuwheel.report.tables import Facts, Row, table
from cuwheel_core.support import printable
from cuwheel_core.support.wording import size

if TYPE_CHECKING:
    from cuwheel.clusters.roster import Cluster
    from cuwheel.network.cluster_access import Certificates


def document(answer: Cluster, *, verbose: bool) -> Document:
    return Document("cuwheel cluster", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Cluster, *, verbose: bool) -> Iterator[Block]:
    count = f"{len(answer.workers)} {'worker' if len(answer.workers) == 1 else 'workers'}"
    cores = sum(each.cores for each in answer.workers)
    yield Heading(f"{answer.address}: {'stopped' if answer.stopped else f'{count}, {cores} cores'}")
    if answer.workers:
        columns = ("worker", "host", "cores", "memory", "cuwheel", "C library", "has", "runs")
        rows = (
            (
                each.name or each.address,
                each.host,
                str(each.cores or ""),
                size(each.memory) if each.memory else "",
                each.cuwheel,
                each.libc,
                printable.Lines(each.tags),
                printable.Lines(each.running) or each.problem,
            )
            for each in answer.workers
        )
        yield table(columns, rows)
    elif not answer.stopped:
        yield Paragraph("Nobody works there. Start a worker: cuwheel cluster worker ADDRESS")
    if verbose and any(not each.apart for each in answer.workers if not each.problem):
        yield Paragraph(
            "Where namespaces are not allowed, shares of one wheel wait for each other on the same machine."
        )


def of_certificates(answer: Certificates, *, verbose: bool) -> Document:
    rows = [
        Row("for those who build", answer.client),
        Row("for the scheduler", answer.scheduler),
        Row("for the workers", answer.worker),
    ]
    if verbose:
        rows.append(Row("the authority's key", answer.authority, "needed for nothing but further certificates"))
    return Document(
        "cuwheel cluster",
        (
            Heading("certificates for a new cluster"),
            Facts(tuple(rows)),
            Paragraph("Each of these files lets its owner run programs on every worker: copy them over SSH, mode 600."),
            Paragraph("Then: cuwheel cluster scheduler tls://0.0.0.0:8786, and cuwheel cluster worker tls://HOST:8786"),
        ),
    )
