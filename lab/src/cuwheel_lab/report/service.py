"""`cuwheel lab trials install-service` and `remove-service`: what resumes trials after each start of the machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim

if TYPE_CHECKING:
    from cuwheel_lab.measuring.service import ServiceChange


def document(answer: ServiceChange, *, verbose: bool) -> Document:
    return Document("cuwheel lab trials", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: ServiceChange, *, verbose: bool) -> Iterator[Block]:
    place = answer.path or "your crontab"
    if answer.removing:
        words = "would be removed from" if answer.dry_run else "removed from" if answer.done else "is not in"
        yield Heading(f"{answer.name} {words} {place}")
        return
    yield Heading(f"{answer.name}: {'would be ' if answer.dry_run else ''}written to {place}")
    if answer.dry_run or verbose:
        yield Verbatim(tuple(answer.text.splitlines()))
        yield Verbatim(tuple(f"then: {shlex.join(each)}" for each in answer.commands))
    yield Paragraph("It resumes the trials after each start of the machine, until they are done.")
    if answer.note:
        yield Paragraph(answer.note[0].upper() + answer.note[1:] + ".")
