"""`cuwheel publish`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.delivery.publishing import Change, PublishedWheel
from cuwheel.delivery.variants import PublishedVariant
from cuwheel.report import variants
from cuwheel.report.document import Amount, Column, Document, Findings, Heading, Paragraph, Table, hidden
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.checking import Checked
    from cuwheel.delivery.publishing import Published
    from cuwheel.delivery.upload import Uploaded
    from cuwheel.report.document import Block

_SHOWN = 20


class Publish(Struct, frozen=True, kw_only=True):
    """`channels`: all that the index has. `removed`, `yanked`, `unyanked`: file names. `changes`: every file of the
    folder that is written or removed; with `dry_run` nothing was, and these are those that would be. Where `action` is
    "check", `wheels` are those of the index, each sound or wrong.
    """

    schema: Literal["cuwheel.publish/1"] = "cuwheel.publish/1"
    action: Literal["publish", "check", "upload"] = "publish"
    place: str
    dry_run: bool = False
    wheels: tuple[PublishedWheel, ...]
    channels: tuple[str, ...]
    variants: tuple[PublishedVariant, ...] = ()
    removed: tuple[str, ...] = ()
    yanked: tuple[str, ...] = ()
    unyanked: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not any(each.severity == "error" for each in self.findings)


def answer_of(published: Published, to: Path, *, dry_run: bool) -> Publish:
    return Publish(
        place=str(to),
        dry_run=dry_run,
        wheels=published.wheels,
        channels=published.channels,
        variants=published.variants,
        removed=published.removed,
        yanked=published.yanked,
        unyanked=published.unyanked,
        changes=published.changes,
        findings=published.findings,
    )


def checked(found: Checked) -> Publish:
    return Publish(
        action="check", place=found.place, wheels=found.wheels, channels=found.channels, findings=found.findings
    )


def uploaded(sent: Uploaded, *, dry_run: bool) -> Publish:
    return Publish(
        action="upload", place=sent.place, dry_run=dry_run, wheels=sent.wheels, channels=(), findings=sent.findings
    )


def document(answer: Publish, *, verbose: bool) -> Document:
    return Document("cuwheel publish", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Publish, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"Index {'at' if '://' in answer.place else 'in'} {answer.place}")
    shown = [each for each in answer.wheels if verbose or answer.action != "check" or each.outcome == "wrong"]
    if shown:
        yield _wheels(shown if verbose else shown[:_SHOWN])
        if len(shown) > _SHOWN and not verbose:
            yield hidden(len(shown) - _SHOWN)
    for word, names in _gone(answer).items() if answer.succeeded else ():
        yield Paragraph(f"{'would be ' if answer.dry_run else ''}{word}: {', '.join(names)}")
    if answer.channels:
        yield Paragraph(f"channels: {', '.join(answer.channels)}")
    yield from variants.published(answer.variants)
    if answer.findings:
        yield Heading("Findings")
        yield Findings(answer.findings)
    if verbose or answer.dry_run:
        yield from _changes(answer)
    yield Paragraph(_sum(answer))


def _wheels(shown: Sequence[PublishedWheel]) -> Table:
    columns = (Column("wheel"), Column("outcome", wrap=False), Column("size", numeric=True), Column("channels"))
    rows = ((each.file, each.outcome, Amount(size(each.size), each.size), " ".join(each.channels)) for each in shown)
    return Table(columns, tuple(rows))


def _changes(answer: Publish) -> Iterator[Block]:
    if answer.changes:
        yield Heading("Files that would change" if answer.dry_run else "Files that changed")
        rows = ((each.path, each.action, size(each.size) if each.size is not None else "") for each in answer.changes)
        yield Table((Column("file"), Column("", wrap=False), Column("size", numeric=True)), tuple(rows))


def _sum(answer: Publish) -> str:
    if answer.action == "check":
        count = f"{len(answer.wheels)} files and {len(answer.channels)} channels"
        errors = sum(each.severity == "error" for each in answer.findings)
        return f"checked {count}: " + (f"{errors} wrong" if errors else "all is as it should be")
    if answer.action == "upload" and not answer.dry_run:
        sent = sum(each.added for each in answer.wheels)
        return f"{sent} of {len(answer.wheels)} uploaded"
    if not answer.succeeded:
        return "refused: nothing was changed"
    if answer.action == "upload":
        return f"dry run: {len(answer.wheels)} would be uploaded"
    added = sum(each.added for each in answer.wheels)
    parts = [f"{added} added"] if added else []
    parts += [f"{len(names)} {word}" for word, names in _gone(answer).items()]
    parts = parts or [f"{len(answer.changes)} files written" if answer.changes else "nothing to change"]
    return f"{'dry run: ' if answer.dry_run else ''}{', '.join(parts)}"


def _gone(answer: Publish) -> dict[str, tuple[str, ...]]:
    every = {"removed": answer.removed, "yanked": answer.yanked, "no longer yanked": answer.unyanked}
    return {word: names for word, names in every.items() if names}
