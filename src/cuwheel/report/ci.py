"""`cuwheel ci`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph
from cuwheel.report.tables import table

if TYPE_CHECKING:
    from cuwheel.delivery.workflows.writing import Ci

_STATES = {
    "same": "as it should be",
    "added": "new",
    "renewed": "renewed",
    "removed": "removed: nothing asks for it any more",
    "edited": "changed by hand, left so",
}


def document(answer: Ci, *, verbose: bool) -> Document:
    return Document("cuwheel ci", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Ci, *, verbose: bool) -> Iterator[Block]:
    if answer.upstream:
        found = answer.upstream
        before = f"{found.built} was the last one built" if found.built else "nothing of it was built yet"
        yield Heading(found.title if found.new else f"{found.upstream}: nothing new")
        yield Paragraph(f"{found.newest.version} is upstream's newest; {before}")
        return
    if answer.action == "matrix":
        rows = ((each.name, each.cuda, each.python, each.runner) for each in answer.rows)
        yield table(("job", "CUDA", "Python", "runner"), rows)
        return
    yield Heading(f"{answer.file} {_state(answer)}")
    foreign = answer.action == "check" and all(each.state == "added" for each in answer.blocks)
    shown = [each for each in answer.blocks if verbose or (each.state != "same" and not foreign)]
    if shown:
        yield table(("block", ""), ((each.name, _STATES[each.state]) for each in shown))
    if answer.action == "write" and not answer.written and answer.changed:
        yield Paragraph(f"--write writes it: cuwheel ci {answer.service} --write")
    if answer.findings:
        yield Findings(answer.findings)


def _state(answer: Ci) -> str:
    if answer.action == "check":
        return "is as it should be" if answer.succeeded else "differs from what would be written, or is not sound"
    if answer.written or answer.changed:
        return "is written" if answer.written else "would change"
    edited = any(each.state == "edited" for each in answer.blocks)
    return "is left as it is" if edited else "is as it should be"
