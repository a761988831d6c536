"""`cuwheel publish`: the document of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from cuwheel.report import variants
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim, findings_section, hidden
from cuwheel.report.tables import Amount, Column, Table, figure, short, table
from cuwheel.support import quoting
from cuwheel_core.support.wording import counted, elided, percent, size
from cuwheel_core.verdicts.condition import outcome_in_words
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from cuwheel.delivery.publishing import Mirror, Publish, PublishedWheel

_SHOWN = 20
_LARGEST = 10
_LOCKS = 3  # commands for as many machines
_OF_MIRROR = ("mirror-", "publish-", "licence-on-changes")  # findings that whoever makes a mirror can act upon
_TAG_WIDTH = 34


def document(answer: Publish, *, verbose: bool) -> Document:
    return Document("cuwheel publish", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Publish, *, verbose: bool) -> Iterator[Block]:
    yield Heading(_sum(answer))
    shown = [each for each in answer.wheels if verbose or answer.action != "check" or each.outcome == "wrong"]
    if answer.mirror and not verbose:  # of dozens those that are large are what one looks for
        shown = sorted(shown, key=lambda each: -each.size)
    most = _LARGEST if answer.mirror else _SHOWN
    if shown:
        alike = all(set(each.channels) == set(answer.channels) for each in shown)  # said in a line of its own
        yield _wheels(shown if verbose else shown[:most], channels=not alike)
        if len(shown) > most and not verbose:
            yield hidden(len(shown) - most)
    for word, names in _gone(answer).items() if answer.succeeded else ():
        yield Paragraph(f"{'would be ' if answer.dry_run else ''}{word}: {', '.join(names)}")
    if answer.mirror:
        yield from _mirror(answer.mirror, dry_run=answer.dry_run)
    if answer.copied:
        yield Paragraph(f"copied: {len(answer.copied)} files written or removed there")
    if answer.channels:
        yield Paragraph(f"channels: {', '.join(answer.channels)}")
    yield from _use(answer)
    yield from variants.published(answer.variants)
    yield from _findings(answer, verbose=verbose)
    if answer.changes and verbose:
        yield Heading("Files that would change" if answer.dry_run else "Files that changed")
        rows = ((each.path, each.action, size(each.size) if each.size is not None else "") for each in answer.changes)
        yield table(("file", short(""), figure("size")), rows)
    elif answer.changes and answer.dry_run:
        yield Paragraph(
            f"{counted(len(answer.changes), 'file')} of the index would be written or removed (--verbose lists them)"
        )


def _findings(answer: Publish, *, verbose: bool) -> Iterator[Block]:
    """What others did not do well with their wheels is a line under a mirror: nobody can mend it there."""
    others = [
        each
        for each in answer.findings
        if answer.mirror and not verbose and each.severity != "error" and not each.rule.startswith(_OF_MIRROR)
    ]
    yield from findings_section(each for each in answer.findings if each not in others)
    if others:
        rules = ", ".join(dict.fromkeys(each.rule for each in others))
        yield Paragraph(
            f"{counted(len(others), 'remark')} on wheels as their publishers made them: {rules} (--verbose)"
        )


def _use(answer: Publish) -> Iterator[Block]:
    """The command that installs what was added, from the folder as it is; of a mirror, all that was asked for."""
    if answer.mirror:
        locks = [PurePath(answer.place, each) for each in answer.mirror.locks if each.startswith("pylock.")]
        lines = [f"  {quoting.here(['uv', 'pip', 'sync', each])}" for each in map(str, locks[:_LOCKS])]
        lines += [f"  {quoting.here(['pip', 'install', '-r', each])}" for each in map(str, locks[:1])]
        if lines:
            yield Verbatim(("Use it, with uv or with pip 26.3 or later:", *lines))
        return
    if not any(each.added for each in answer.wheels):
        return
    for number, fix in enumerate(answer.uses):
        said = "or " if number else "Use it"
        lines = [f"  {quoting.command_of_fix(words, fix.shell)}" for words in fix.commands]
        yield Verbatim((f"{said}{fix.text}:" if fix.text else f"{said.strip()}:", *lines))


def _mirror(mirror: Mirror, *, dry_run: bool) -> Iterator[Block]:
    columns = ("machines", "package", "how", figure("files"))
    rows = []
    for part in mirror.parts:
        names = ", ".join(part.machines)
        if part.problem or not part.packages:
            rows.append((names, "", part.problem or "nothing with CUDA code", str(len(part.files))))
        for each in part.packages:
            how = outcome_in_words(each.outcome, each.requires) if each.version else each.why
            rows.append((names, f"{each.name} {each.version or '-'}", how, str(len(part.files))))
    yield table(columns, rows)
    if mirror.new:
        amount = f" ({size(mirror.bytes_new)})" if mirror.bytes_new else ""
        yield Paragraph(f"{len(mirror.new)} files {'would be' if dry_run else 'were'} downloaded{amount}")
    if mirror.bytes_before:
        share = percent(mirror.bytes_after / mirror.bytes_before)
        sizes = f"{size(mirror.bytes_after)} instead of {size(mirror.bytes_before)}"
        yield Paragraph(f"{sizes} that these files have elsewhere: {share}")
    if mirror.locks:
        yield Paragraph(f"locks: {', '.join(mirror.locks)}")


def _wheels(shown: Sequence[PublishedWheel], *, channels: bool) -> Table:
    """A name is told in the parts that people read; one that is no wheel's stands as it is."""
    told = {each.outcome for each in shown} != {"added"}  # which the heading says of all
    outcomes, in_channels = [short("")] if told else [], ["channels"] if channels else []
    columns: list[str | Column] = [*map(short, ("wheel", "for")), *outcomes, figure("size"), *in_channels]
    rows: list[tuple[str | Amount, ...]] = []
    for each in shown:
        name = WheelName.parse(each.file)
        what = f"{name.name} {name.version}{f' build {name.build}' if name.build else ''}" if name else each.file
        tag = "-".join(filter(None, (name.python, name.abi, name.platform, name.variant))) if name else ""
        tag = elided(tag, _TAG_WIDTH)
        outcome = (each.outcome,) if told else ()
        shown_channels = (" ".join(each.channels),) if channels else ()
        rows.append((what, tag, *outcome, Amount(size(each.size), each.size), *shown_channels))
    return table(columns, rows)


def _sum(answer: Publish) -> str:
    if answer.action == "check":
        count = f"{counted(len(answer.wheels), 'file')} and {counted(len(answer.channels), 'channel')}"
        errors = sum(each.severity == "error" for each in answer.findings)
        said = f"{errors} wrong" if errors else "all is as it should be"
        return f"{answer.place}: checked {count}: {said}"
    if answer.action == "upload" and not answer.dry_run:
        sent = sum(each.added for each in answer.wheels)
        return f"{sent} of {counted(len(answer.wheels), 'wheel')} uploaded to {answer.place}"
    if not answer.succeeded:
        return f"Refused: nothing was changed in {answer.place}"
    if answer.action == "upload":
        return f"{counted(len(answer.wheels), 'wheel')} would be uploaded to {answer.place}; dry run"
    added = sum(each.added for each in answer.wheels)
    would = "would be " if answer.dry_run else ""
    parts = [f"{counted(added, 'wheel')} {would}added to {answer.place}"] if added else []
    in_ = "" if added else f" in {answer.place}"
    parts += [f"{counted(len(names), 'file')} {would}{word}{in_}" for word, names in _gone(answer).items()]
    if not parts and answer.changes:
        parts = [f"{counted(len(answer.changes), 'file')} {would}written in {answer.place}"]
    return f"{', '.join(parts) or f'Nothing to change in {answer.place}'}{'; dry run' if answer.dry_run else ''}"


def _gone(answer: Publish) -> dict[str, tuple[str, ...]]:
    every = {"removed": answer.removed, "yanked": answer.yanked, "no longer yanked": answer.unyanked}
    return {word: names for word, names in every.items() if names}
