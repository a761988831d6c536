"""`cuwheel lab matrix`: the answer, its document, and the table to paste into an issue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cuwheel.machine import profile
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Column, Facts, Row, figure, short, table
from cuwheel.support import files, quoting
from cuwheel.support.answer import to_json
from cuwheel.version import __version__
from cuwheel_core.support import printable, wording
from cuwheel_lab.measuring.matrix import STATE_FILE, Cell, Matrix

_MINUTE = 60.0


def save(answer: Matrix) -> None:
    for name, text in ((STATE_FILE, to_json(answer)), ("matrix.md", printable.text(markdown(answer)))):
        files.write(Path(answer.folder, name), text)


def document(answer: Matrix, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(f"{answer.file}: {_count(answer)}")]
    planned = not any(each.run for each in answer.cells)
    if not planned:
        columns: list[str | Column] = [*answer.axes, short("result"), figure("time"), "cause"]
        blocks.append(table(columns, (_row(answer, each) for each in answer.cells)))
    if verbose or planned:
        lines = (
            (f"  {', '.join(each.choices.values()) or 'the command'}:", f"    {quoting.here(each.command)}")
            for each in answer.cells
        )
        blocks.append(Verbatim(tuple(line for pair in lines for line in pair)))
    failed = [each for each in answer.cells if each.run and each.run.result != "succeeded"]
    for cause in {each.causes[0].id: each.causes[0] for each in failed if each.causes}.values():
        blocks += [Heading(f"{cause.id}  {wording.percent(cause.confidence)}"), Paragraph(f"  {cause.title}")]
        blocks.append(Facts(tuple(Row("fix" if not index else "or", fix) for index, fix in enumerate(cause.fix))))
    again = tuple(f"  {each.again}" for each in failed if each.again)
    if again:
        blocks += [Heading("Again"), Verbatim(again)]
    found = [each for each in failed if each.difference]
    if found:
        blocks += [Heading("What makes the difference"), Facts(tuple(map(_difference, found)))]
    compare = tuple(f"  {each.compare}" for each in failed if each.compare and not each.difference)
    if compare:
        blocks += [Heading("To find what makes the difference (or all of them with --diff)"), Verbatim(compare)]
    if not planned:
        blocks.append(Paragraph(f"Written to {answer.folder}: matrix.md to paste, matrix.json, and each record."))
    return Document(f"cuwheel lab matrix {answer.file}", tuple(blocks))


def _difference(cell: Cell) -> Row:
    return Row(", ".join(cell.choices.values()) or "the command", cell.difference)


def _count(answer: Matrix) -> str:
    ran = [each.run for each in answer.cells if each.run]
    if not ran:
        return wording.counted(len(answer.cells), "configuration")
    good = sum(run.result == "succeeded" for run in ran)
    return f"{good} of {wording.counted(len(ran), 'configuration')} succeeded"


def _row(answer: Matrix, each: Cell) -> tuple[str, ...]:
    return (*(each.choices.get(axis, "") for axis in answer.axes), _result(each), _time(each), _cause(each))


def _result(each: Cell) -> str:
    run = each.run
    if run is None:
        return "to do"
    if run.result == "failed" and run.status is not None:
        return f"failed ({run.status})" if run.status >= 0 else f"failed (signal {-run.status})"
    return f"{run.result}, {run.cache_hits} cached" if run.cache_hits else run.result


def _time(each: Cell) -> str:
    if each.run is None or not each.run.seconds:
        return ""
    minutes, seconds = divmod(each.run.seconds, _MINUTE)
    return f"{minutes:.0f} min {seconds:02.0f} s" if minutes else f"{seconds:.1f} s"


def _cause(each: Cell) -> str:
    if each.causes:
        first = each.causes[0]
        return f"{first.id}: {first.evidence[0].text}" if first.evidence else first.id
    return each.error or (each.run.problem if each.run else "")


def markdown(answer: Matrix) -> str:
    """A table to paste into an issue, without the names of people's home folders."""
    return "\n".join(_lines(profile.scrub(answer, home="", names=()))) + "\n"


def _lines(answer: Matrix) -> Iterator[str]:
    yield from (f"# {printable.markdown(answer.file)}: {_count(answer)}", "", f"By cuwheel {__version__}.", "")
    titles = [*answer.axes, "result", "time", "cause"]
    yield "| " + " | ".join(map(printable.markdown, titles)) + " |"
    yield "|" + " --- |" * len(titles)
    for each in answer.cells:
        yield "| " + " | ".join(map(printable.markdown, _row(answer, each))) + " |"
    for each in answer.cells:
        if each.run and each.run.result != "succeeded":
            yield from ("", f"## {printable.markdown(', '.join(each.choices.values()))}", "")
            yield f"    {printable.line(quoting.here(each.command))}"
            yield ""
            yield from (
                f"- **{cause.id}** ({wording.percent(cause.confidence)}): {printable.markdown(cause.title)}"
                for cause in each.causes[:3]
            )
            yield from (f"- fix: {printable.markdown(fix)}" for cause in each.causes[:1] for fix in cause.fix)
            if each.difference:
                yield f"- {printable.markdown(each.difference)}"
            if not each.causes:
                yield f"- {printable.markdown(_cause(each)) or 'no known cause'}"
