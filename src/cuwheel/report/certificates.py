"""`cuwheel cluster init`: the document of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report.document import Document, Facts, Heading, Paragraph, Row

if TYPE_CHECKING:
    from cuwheel.network.cluster_access import Certificates


def document(answer: Certificates, *, verbose: bool) -> Document:
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
