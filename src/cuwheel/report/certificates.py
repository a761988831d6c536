"""`cuwheel cluster init`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.report.document import Document, Facts, Heading, Paragraph, Row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Certificates(Struct, frozen=True, kw_only=True):
    """Each file but `authority` holds a key, its certificate and the authority's."""

    schema: Literal["cuwheel.certificates/1"] = "cuwheel.certificates/1"
    authority: str
    client: str
    scheduler: str
    worker: str

    @property
    def succeeded(self) -> bool:
        return True


def of_made(made: Sequence[Path]) -> Certificates:
    authority, client, scheduler, worker = map(str, made)
    return Certificates(authority=authority, client=client, scheduler=scheduler, worker=worker)


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
