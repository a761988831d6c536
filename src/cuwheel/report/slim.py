"""The document of `cuwheel slim`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.slim.answer import Size, Slim
from cuwheel.device_code.bitcode import SUFFIX
from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim, findings_section, hidden
from cuwheel.report.graft import compiled_rows
from cuwheel.report.tables import Amount, Column, Facts, Row, figure, short, table
from cuwheel_core.facts.arch import machine_code_first
from cuwheel_core.support import printable
from cuwheel_core.support.wording import counted, file_name, first_few, percent_change, size
from cuwheel_core.wheel.tags import release_of_file

if TYPE_CHECKING:
    from cuwheel.changes.binaries.plan import FileChange
    from cuwheel_core.support.finding import Finding

_SHOWN = 12
_ARCHS = 6
_NAME_WIDTH = 34

__all__ = ["Slim", "document"]


def document(answer: Slim, *, verbose: bool) -> Document:
    title = f"cuwheel slim {file_name(answer.target)}"
    if answer.action != "slim":
        done = [each.message for each in answer.findings if each.rule in ("undone", "committed")]
        rest = tuple(each for each in answer.findings if each.rule not in ("undone", "committed"))
        blocks: list[Block] = [Heading(f"{answer.target}: {'; '.join(done)}")]
        blocks += [Findings(rest)] if rest else []
        return Document(title, (*blocks, *_files(answer.files, verbose=True)) if verbose else tuple(blocks))
    changed = [each for each in answer.files if each.fate != "unchanged"]
    return Document(
        title,
        (
            Heading(_heading(answer, changed)),
            *([Paragraph(sums)] if (sums := _sums(answer, changed)) else ()),
            *_files(answer.files if verbose else changed, verbose=verbose),
            *([Facts(tuple(compiled_rows(answer)))] if answer.compiled else ()),
            *_cut_by_use(answer, verbose=verbose),
            *_what_remains(answer, verbose=verbose),
            *findings_section(_merged(answer.findings, verbose=verbose)),
            *_next_steps(answer),
        ),
    )


def _heading(answer: Slim, changed: Sequence[FileChange]) -> str:
    """The heading: of a wheel with its own size, which is what is downloaded and kept."""
    name = release_of_file(file_name(answer.target))
    if answer.is_for_other_gpus:
        return f"{name} has no code for {', '.join(answer.targets)}: nothing was removed"
    asked = f"{name} for {', '.join(answer.targets) or '?'}"
    return f"{asked}: {_change(answer.wheel or answer.total) if changed else 'nothing to remove'}"


def _sums(answer: Slim, changed: Sequence[FileChange]) -> str:
    if not answer.files:
        return "no library with device code"
    others = any(each.fate == "removed" or each.path.endswith(SUFFIX) for each in answer.files)
    count = counted(len(answer.files), "file" if others else "library")
    lines = [] if answer.is_for_other_gpus else [f"{count} with device code"]
    if changed:
        lines = [f"{len(changed)} of {count} with device code: {_change(answer.total)}"]
    if answer.refused:
        lines.append("refused: nothing was written (see the findings)")
    elif answer.dry_run and changed:
        lines.append("dry run: nothing was written, the new sizes are estimates")
    elif answer.written and answer.output and answer.kind != "environment":
        lines.append(f"written: {answer.output}")
    return printable.Lines(lines)


def _change(total: Size) -> str:
    before, after = total.bytes_before, total.bytes_after
    change = percent_change(before, after)
    return f"{size(before)} → {size(after)}" + (f" ({change})" if change else "")


def _files(files: Iterable[FileChange], *, verbose: bool) -> Iterator[Block]:
    ordered = sorted(files, key=lambda each: each.bytes_after - each.bytes_before)
    shown = ordered if verbose else ordered[:_SHOWN]
    if not shown:
        return
    # File names stay whole where they leave room for the rest at 80 columns.
    name = short if not verbose and max(len(file_name(each.path)) for each in shown) <= _NAME_WIDTH else Column
    columns = (name("file"), figure("before"), figure("after"), figure(""), "removed")
    yield table(columns, (_row(each, verbose=verbose) for each in shown))
    if len(ordered) > len(shown):
        yield hidden(len(ordered) - len(shown))


def _row(each: FileChange, *, verbose: bool) -> tuple[str | Amount, ...]:
    saved = (each.bytes_after - each.bytes_before) / each.bytes_before if each.bytes_before else 0.0
    return (
        each.path if verbose else file_name(each.path),
        Amount(size(each.bytes_before), each.bytes_before),
        Amount(size(each.bytes_after) if each.fate != "removed" else "", each.bytes_after),
        Amount(percent_change(each.bytes_before, each.bytes_after) or "+0 %", saved),
        _removed_in_words(each, verbose=verbose),
    )


def _removed_in_words(each: FileChange, *, verbose: bool) -> str:
    if each.fate == "removed":
        return "all of it"
    archs = sorted({row.arch for row in each.dropped}, key=machine_code_first)
    few = archs if verbose else archs[:_ARCHS]
    parts = [" ".join(few) + (f" +{len(archs) - len(few)}" if len(archs) > len(few) else "")] if archs else []
    if each.recompressed:
        ways = sorted({f"{row.before} to {row.after}" for row in each.recompressed})
        before, after = (
            sum(getattr(row, f"bytes_{when}") for row in each.recompressed) for when in ("before", "after")
        )
        parts.append(f"{', '.join(ways)}: {size(before)} → {size(after)}")
    if each.added:
        parts.append("added: " + " ".join(row.arch for row in each.added))
    if each.debug:
        parts.append(f"debug information ({size(each.debug)})")
    return "; ".join(parts)


def _cut_by_use(answer: Slim, *, verbose: bool) -> Iterator[Block]:
    """What will no longer work."""
    if answer.workload is None:
        return
    gone = [each for each in answer.kept if each.kept < each.pieces]
    shown = gone if verbose else [each for each in gone if each.kept][:_SHOWN]
    without = [file_name(each.path) for each in gone if not each.kept]
    yield Heading(f"Only for: {', '.join(answer.workload) or 'what was traced'}")
    words = "Whatever this does not load will fail, in words that do not say why, or give slightly other results."
    yield Paragraph(printable.Lines((words, *([f"Nothing is left in {', '.join(without)}."] if without else []))))
    columns = ("library", figure("kept"), figure("of"), "pieces of device code")
    rows = [
        (file_name(each.path), Amount(str(each.kept), each.kept), Amount(str(each.pieces), each.pieces), "")
        for each in shown
    ]
    if rows:
        yield table(columns, rows)


def _what_remains(answer: Slim, *, verbose: bool) -> Iterator[Block]:
    if answer.remaining:
        rows = [Row("left in all", ", ".join(f"{each.name} {size(each.bytes)}" for each in answer.remaining[:5]))]
        if answer.heavy:
            heavy = answer.heavy if verbose else answer.heavy[:3]
            listed = ", ".join(f"{file_name(each.path)} {size(each.bytes)} ({each.mostly})" for each in heavy)
            rows.append(Row("not touched", listed))
        yield Facts(tuple(rows))


def _merged(findings: Sequence[Finding], *, verbose: bool) -> tuple[Finding, ...]:
    """What a rule has to say of many libraries, said once."""
    if verbose:
        return tuple(findings)
    by_rule: dict[str, list[Finding]] = {}
    for each in findings:
        by_rule.setdefault(each.rule, []).append(each)
    merged = []
    for first, *others in by_rule.values():
        messages = first_few([each.message for each in others], 2, more="more like it (--verbose)")
        merged.append(replace(first, evidence=messages) if others else first)
    return tuple(merged)


def _next_steps(answer: Slim) -> Iterator[Block]:
    lines = []
    if answer.undo:
        lines += ["  to undo it, or to free the space: the originals are kept until then", f"    {answer.undo}"]
        lines.append(f"    {answer.undo.replace('--undo', '--commit')}")
    if answer.container:
        lines += [
            "  in the layer of an image that installs packages: a later layer saves nothing",
            f"    {answer.container}",
        ]
    if lines:
        yield Heading("Next")
        yield Verbatim(tuple(lines))
