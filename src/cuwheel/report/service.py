"""`cuwheel trials install-service` and `remove-service`: the answer and its document."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.proving.measuring.service import Kind, Service
from cuwheel.report.document import Document, Heading, Paragraph, Verbatim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.report.document import Block


class ServiceChange(Struct, frozen=True, kw_only=True):
    """`path`: the unit's file; None for cron. `done`: it was written, or removed."""

    schema: Literal["cuwheel.service/1"] = "cuwheel.service/1"
    kind: Kind
    name: str
    path: str | None
    text: str
    commands: tuple[tuple[str, ...], ...]
    removing: bool
    done: bool
    dry_run: bool
    note: str = ""

    @property
    def succeeded(self) -> bool:
        return self.done or self.dry_run


def answer_of(service: Service, *, removing: bool, done: bool, dry_run: bool) -> ServiceChange:
    return ServiceChange(
        kind=service.kind,
        name=service.name,
        path=service.path,
        text=service.text,
        commands=service.commands,
        removing=removing,
        done=done,
        dry_run=dry_run,
        note=service.note,
    )


def document(answer: ServiceChange, *, verbose: bool) -> Document:
    return Document("cuwheel trials", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: ServiceChange, *, verbose: bool) -> Iterator[Block]:
    place = answer.path or "your crontab"
    if answer.removing:
        words = "would be removed from" if answer.dry_run else "removed from" if answer.done else "is not in"
        yield Heading(f"{answer.name} {words} {place}")
        return
    yield Heading(f"{answer.name}: {'would be ' if answer.dry_run else ''}written to {place}")
    if answer.dry_run or verbose:
        yield Verbatim(tuple(answer.text.splitlines()))
        yield Paragraph("then: " + "; ".join(shlex.join(each) for each in answer.commands))
    yield Paragraph("It resumes the trials after each start of the machine, until they are done.")
    if answer.note:
        yield Paragraph(answer.note[0].upper() + answer.note[1:] + ".")
