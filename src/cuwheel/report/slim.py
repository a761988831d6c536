"""`cuwheel slim`: the answer and its document."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.changes.slim.note import names_of
from cuwheel.changes.slim.outcome import FileChange, Heavy, Remaining, Size
from cuwheel.changes.slim.targets import Kind
from cuwheel.changes.slim.use import Kept
from cuwheel.report.document import Amount, Column, Document, Facts, Findings, Heading, Paragraph, Row, Table, hidden
from cuwheel.report.inspect_document import arch_order
from cuwheel.support import quoting
from cuwheel.support.finding import Finding
from cuwheel.support.quoting import is_of_windows
from cuwheel.support.wording import file_name, first_few, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.changes.slim.outcome import Outcome
    from cuwheel.changes.slim.targets import Slimmed
    from cuwheel.machine.fleet import Machine
    from cuwheel.report.document import Block

_SHOWN = 12
_ARCHS = 6
_NAME_WIDTH = 34


class Slim(Struct, frozen=True, kw_only=True):
    """`targets`: the machines it was made for, or `all`. In a dry run sizes after are estimates.

    `total` is of the libraries with device code. `container`: the line for a Dockerfile. `workload`: what was traced,
    where it was cut by use; `kept`: what that left of each library.
    """

    schema: Literal["cuwheel.slim/1"] = "cuwheel.slim/1"
    target: str
    kind: Kind
    action: Literal["slim", "undo", "commit"] = "slim"
    targets: tuple[str, ...]
    dry_run: bool
    written: bool
    refused: bool
    output: str | None
    files: tuple[FileChange, ...]
    total: Size
    wheel: Size | None
    remaining: tuple[Remaining, ...]
    heavy: tuple[Heavy, ...]
    undo: str | None
    container: str | None
    findings: tuple[Finding, ...]
    workload: tuple[str, ...] | None = None
    kept: tuple[Kept, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not self.refused and not (
            self.action == "undo" and any(each.severity == "error" for each in self.findings)
        )


def answer_of(slimmed: Slimmed, *, dry_run: bool) -> Slim:
    made, kind, target = slimmed.outcome, slimmed.kind, slimmed.target
    return Slim(
        target=target,
        kind=kind,
        targets=names_of(slimmed.machines),
        dry_run=dry_run,
        written=made.written,
        refused=made.refused,
        output=made.output,
        files=made.files,
        total=made.total,
        wheel=made.wheel,
        remaining=made.remaining,
        heavy=made.heavy,
        undo=made.undo,
        container=None if slimmed.workload else _container_line(kind, slimmed.machines, target, made),
        workload=slimmed.workload,
        kept=made.kept,
        findings=made.findings,
    )


def settled(made: Outcome, root: Path, action: Literal["undo", "commit"]) -> Slim:
    """What undoing, or giving up the originals, came to."""
    return Slim(
        target=str(root),
        kind="environment",
        action=action,
        targets=(),
        dry_run=False,
        written=made.written,
        refused=False,
        output=made.output,
        files=made.files,
        total=made.total,
        wheel=None,
        remaining=(),
        heavy=(),
        undo=None,
        container=None,
        findings=made.findings,
    )


def _container_line(kind: Kind, machines: Sequence[Machine] | None, target: str, made: Outcome) -> str | None:
    """What a Dockerfile has to say. A build machine has no GPU: so capabilities, never `this`."""
    if not any(each.fate != "unchanged" for each in made.files):
        return None
    if kind == "wheel" and made.output:
        folder = PurePath(made.output).parent.name or "."
        return f"RUN --mount=type=bind,source={folder},target=/w pip install /w/*.whl"
    if kind != "environment" or is_of_windows(target):  # images are of Linux
        return None
    names = ",".join(dict.fromkeys(each.capability or each.name for each in machines)) if machines else "all"
    return f"RUN pip install … && cuwheel slim --env {quoting.posix([target])} --for {names} --commit"


def document(answer: Slim, *, verbose: bool) -> Document:
    title = f"cuwheel slim {file_name(answer.target)}"
    if answer.action != "slim":
        blocks: list[Block] = [Heading(f"{answer.action}: {answer.target}"), Findings(answer.findings)]
        return Document(title, (*blocks, *_files(answer.files, verbose=True)) if verbose else tuple(blocks))
    changed = [each for each in answer.files if each.fate != "unchanged"]
    return Document(
        title,
        (
            Heading(f"{file_name(answer.target)} for {', '.join(answer.targets) or '?'}"),
            Paragraph(_sums(answer, changed)),
            *_files(answer.files if verbose else changed, verbose=verbose),
            *_lost(answer, verbose=verbose),
            *_rest(answer, verbose=verbose),
            *([Heading("Findings"), Findings(merged(answer.findings, verbose=verbose))] if answer.findings else ()),
            *_next(answer),
        ),
    )


def _sums(answer: Slim, changed: Sequence[FileChange]) -> str:
    if not answer.files:
        return "no library with device code, nothing to slim"
    of = f"{len(changed)} of {len(answer.files)} libraries with device code"
    lines = [f"{_change(answer.total)}, {of}" if changed else f"nothing to remove in {len(answer.files)} libraries"]
    if answer.wheel and changed:
        lines.append(f"the wheel: {_change(answer.wheel)}")
    if answer.refused:
        lines.append("refused: nothing was written (see the findings)")
    elif answer.dry_run:
        lines.append("dry run: nothing was written, the new sizes are estimates")
    elif answer.written and answer.output and answer.kind != "environment":
        lines.append(f"written: {answer.output}")
    return "\n".join(lines)


def _change(total: Size) -> str:
    return f"{size(total.bytes_before)} → {size(total.bytes_after)}{_percent(total.bytes_before, total.bytes_after)}"


def _percent(before: int, after: int) -> str:
    return f" ({100 * (after - before) / before:+.0f} %)" if before else ""


def _files(files: Iterable[FileChange], *, verbose: bool) -> Iterator[Block]:
    ordered = sorted(files, key=lambda each: each.bytes_after - each.bytes_before)
    shown = ordered if verbose else ordered[:_SHOWN]
    if not shown:
        return
    # File names stay whole where they leave room for the rest at 80 columns.
    short = not verbose and max(len(file_name(each.path)) for each in shown) <= _NAME_WIDTH
    columns = (
        Column("file", wrap=not short),
        Column("before", numeric=True),
        Column("after", numeric=True),
        Column("", numeric=True),
        Column("removed"),
    )
    yield Table(columns, tuple(_row(each, verbose=verbose) for each in shown))
    if len(ordered) > len(shown):
        yield hidden(len(ordered) - len(shown))


def _row(each: FileChange, *, verbose: bool) -> tuple[str | Amount, ...]:
    saved = (each.bytes_after - each.bytes_before) / each.bytes_before if each.bytes_before else 0.0
    return (
        each.path if verbose else file_name(each.path),
        Amount(size(each.bytes_before), each.bytes_before),
        Amount(size(each.bytes_after) if each.fate != "removed" else "", each.bytes_after),
        Amount(f"{100 * saved:+.0f} %", saved),
        _left_out(each, verbose=verbose),
    )


def _left_out(each: FileChange, *, verbose: bool) -> str:
    if each.fate == "removed":
        return "all of it"
    archs = sorted({row.arch for row in each.dropped}, key=arch_order)
    few = archs if verbose else archs[:_ARCHS]
    parts = [" ".join(few) + (f" +{len(archs) - len(few)}" if len(archs) > len(few) else "")] if archs else []
    if each.recompressed:
        ways = sorted({f"{row.before} to {row.after}" for row in each.recompressed})
        before, after = (
            sum(getattr(row, f"bytes_{when}") for row in each.recompressed) for when in ("before", "after")
        )
        parts.append(f"{', '.join(ways)}: {size(before)} → {size(after)}")
    return "; ".join(parts)


def _lost(answer: Slim, *, verbose: bool) -> Iterator[Block]:
    """What will no longer work."""
    if answer.workload is None:
        return
    gone = [each for each in answer.kept if each.kept < each.pieces]
    shown = gone if verbose else [each for each in gone if each.kept][:_SHOWN]
    without = [file_name(each.path) for each in gone if not each.kept]
    yield Heading(f"Only for: {', '.join(answer.workload) or 'what was traced'}")
    words = "Whatever this does not load will fail, in words that do not say why, or give slightly other results."
    yield Paragraph(words + (f"\nNothing is left in {', '.join(without)}." if without else ""))
    columns = (
        Column("library"),
        Column("kept", numeric=True),
        Column("of", numeric=True),
        Column("pieces of device code"),
    )
    rows = [
        (file_name(each.path), Amount(str(each.kept), each.kept), Amount(str(each.pieces), each.pieces), "")
        for each in shown
    ]
    if rows:
        yield Table(columns, tuple(rows))


def _rest(answer: Slim, *, verbose: bool) -> Iterator[Block]:
    if answer.remaining:
        rows = [Row("what remains", ", ".join(f"{each.name} {size(each.bytes)}" for each in answer.remaining[:5]))]
        if answer.heavy:
            heavy = answer.heavy if verbose else answer.heavy[:3]
            listed = ", ".join(f"{file_name(each.path)} {size(each.bytes)} ({each.mostly})" for each in heavy)
            rows.append(Row("not touched", listed))
        yield Facts(tuple(rows))


def merged(findings: Sequence[Finding], *, verbose: bool) -> tuple[Finding, ...]:
    """What a rule has to say of many libraries, said once."""
    if verbose:
        return tuple(findings)
    by_rule: dict[str, list[Finding]] = {}
    for each in findings:
        by_rule.setdefault(each.rule, []).append(each)
    return tuple(found[0] if len(found) == 1 else _together(found) for found in by_rule.values())


def _together(found: list[Finding]) -> Finding:
    first = found[0]
    others = first_few([each.message for each in found[1:]], 2, more="more like it (--verbose)")
    return Finding(rule=first.rule, severity=first.severity, message=first.message, evidence=others, fix=first.fix)


def _next(answer: Slim) -> Iterator[Block]:
    rows = []
    if answer.undo:
        rows.append(Row("undo", answer.undo))
        rows.append(
            Row("free the space", answer.undo.replace("--undo", "--commit") + "   (the originals are kept until then)")
        )
    if answer.container:
        rows.append(Row("in an image", f"{answer.container}\nin the layer that installs; a later layer saves nothing"))
    if rows:
        yield Heading("Next")
        yield Facts(tuple(rows))
