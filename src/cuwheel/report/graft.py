"""The document of `cuwheel graft`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.changes.graft.answer import Graft, Proof
from cuwheel.report.document import Block, Document, Heading, Paragraph, findings_section
from cuwheel.report.tables import Amount, Facts, Row, figure, table
from cuwheel_core.support import printable
from cuwheel_core.support.wording import counted, file_name, rough_seconds, size
from cuwheel_core.wheel.tags import release_of_file

if TYPE_CHECKING:
    from cuwheel.changes.slim.answer import Slim

__all__ = ["Graft", "document"]


def document(answer: Graft, *, verbose: bool) -> Document:
    del verbose  # it has nothing to leave out
    title = f"cuwheel graft {file_name(answer.base)}"
    blocks: list[Block] = [Heading(_heading(answer))]
    if sums := _sums(answer):
        blocks.append(Paragraph(sums))
    if answer.added:
        blocks += _libraries(answer)
    if answer.proof:
        blocks.append(Facts(tuple(_proof_rows(answer.proof))))
    if answer.compiled:
        blocks.append(Facts(tuple(compiled_rows(answer))))
    return Document(title, (*blocks, *findings_section(answer.findings)))


def _heading(answer: Graft) -> str:
    """What came of it."""
    base = release_of_file(file_name(answer.base))
    if answer.refused:
        return f"{base}: refused, nothing was written (see the findings)"
    if answer.action == "split":
        made = counted(len(answer.outputs), "wheel")
        return f"{base}: {made} {'would be written' if answer.dry_run else 'written'}, one for each architecture"
    if not answer.added:
        return f"{base}: nothing to add"
    archs = ", ".join(dict.fromkeys(str(each.arch) for each in answer.added))
    pieces = counted(sum(each.count for each in answer.added), "piece")
    would = "would be added" if answer.dry_run else "added"
    made_of = ", compiled from its PTX" if answer.action == "compile" else ""
    return f"{base}: {archs} {would}, {pieces} of device code{made_of}"


def _sums(answer: Graft) -> str:
    lines = [f"from: {', '.join(file_name(each) for each in answer.donors)}"] if answer.donors else []
    if answer.wheel and answer.action != "split":
        lines.append(f"the wheel: {size(answer.wheel.bytes_before)} → {_about(answer)}{size(answer.wheel.bytes_after)}")
    if answer.dry_run and not answer.refused:
        lines.append("dry run: nothing was written")
    word = "would be written" if answer.dry_run else "written"
    lines += [f"{word}: {each}" for each in answer.outputs] if not answer.refused else []
    lines += [f"undo: {answer.undo}"] if answer.undo else []
    return printable.Lines(lines)


def _about(answer: Graft) -> str:
    """`about ` before the sizes of what is not compiled yet, which are estimates."""
    return "about " if answer.dry_run and answer.action == "compile" else ""


def _libraries(answer: Graft) -> Iterator[Block]:
    columns = ("file", figure("before"), figure("after"), figure("containers"), "added")
    rows = (
        (
            file_name(each.path),
            Amount(size(each.bytes_before), each.bytes_before),
            Amount(size(each.bytes_after), each.bytes_after),
            Amount(str(each.containers), each.containers),
            ", ".join(f"{row.arch} ({_about(answer)}{size(row.bytes)})" for row in each.added),
        )
        for each in answer.libraries
    )
    yield table(columns, rows)


def _proof_rows(proof: Proof) -> Iterator[Row]:
    words = {
        "witness": f"a witness: the code for {', '.join(proof.witness)} is the same in both",
        "record": "the records of both builds are the same",
        "forced": "none: --force",
    }
    yield Row("proof", words[proof.kind])
    if proof.compared:
        yield Row("compared", "; ".join(proof.compared))
    if proof.not_compared:
        yield Row("not seen", "; ".join(proof.not_compared))


def compiled_rows(answer: Graft | Slim) -> Iterator[Row]:
    made_of = dict.fromkeys(f"{each.arch} from {each.source}, ptxas {each.ptxas}" for each in answer.compiled)
    yield Row("compiled" if answer.written else "to compile", "; ".join(made_of))
    if answer.dry_run and answer.seconds:
        yield Row("takes", f"{rough_seconds(*answer.seconds)} of one core, less what was compiled before")
    if kept := sum(each.kept for each in answer.compiled):
        yield Row("from the cache", f"{kept} of {len(answer.compiled)}")
    changes = Counter((each.machine, each.before, each.after) for each in answer.reached)
    for (machine, before, after), count in changes.items():
        yield Row(machine, f"{before} → {after}" + (f" ({counted(count, 'library')})" if count > 1 else ""))
