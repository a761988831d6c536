"""`cuwheel verify --cluster`: the document of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report import proof
from cuwheel.report.document import Block, Document, Heading, Paragraph

if TYPE_CHECKING:
    from cuwheel.proving.on_cluster import Proofs


def document(answer: Proofs, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    for each in answer.proofs:
        blocks.append(Heading(f"compute capability {each.gpu}" + (f", on {each.worker}" if each.worker else "")))
        if each.proof is None:
            blocks.append(Paragraph(f"not tried: {each.problem}"))
            continue
        blocks += proof.document(each.proof, verbose=verbose).blocks
        blocks.append(Paragraph(f"cuwheel verify --read {each.file}"))
    good = sum(each.succeeded for each in answer.proofs)
    blocks.append(Paragraph(f"proven on {good} of {len(answer.proofs)} kinds of GPU"))
    return Document("cuwheel verify: proofs of a fleet", tuple(blocks))
