"""`cuwheel publish`: the document of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report import variants
from cuwheel.report.document import Amount, Column, Document, Findings, Heading, Paragraph, Table, hidden
from cuwheel.support.wording import size
from cuwheel.wheel.metadata import WheelName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.delivery.publishing import Publish, PublishedWheel
    from cuwheel.report.document import Block

_SHOWN = 20


def document(answer: Publish, *, verbose: bool) -> Document:
    return Document("cuwheel publish", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Publish, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{answer.place}: {_sum(answer)}")
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
    if answer.changes and (verbose or answer.dry_run):
        yield Heading("Files that would change" if answer.dry_run else "Files that changed")
        rows = ((each.path, each.action, size(each.size) if each.size is not None else "") for each in answer.changes)
        yield Table((Column("file"), Column("", wrap=False), Column("size", numeric=True)), tuple(rows))


def _wheels(shown: Sequence[PublishedWheel]) -> Table:
    """A name is told in the parts that people read; one that is no wheel's stands as it is."""
    columns = (
        Column("wheel", wrap=False),
        Column("for", wrap=False),
        Column("", wrap=False),
        Column("size", numeric=True),
        Column("channels"),
    )
    rows = []
    for each in shown:
        name = WheelName.parse(each.file)
        what = f"{name.name} {name.version}{f' build {name.build}' if name.build else ''}" if name else each.file
        tag = "-".join(filter(None, (name.python, name.abi, name.platform, name.variant))) if name else ""
        rows.append((what, tag, each.outcome, Amount(size(each.size), each.size), " ".join(each.channels)))
    return Table(columns, tuple(rows))


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
