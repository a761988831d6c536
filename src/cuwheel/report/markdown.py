"""A document as Markdown, for the summary of a CI job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim
from cuwheel.report.drawings import Chart, Timeline
from cuwheel.report.tables import Amount, Cell, Column, Facts, HeatMap, Look, Mark, Matrix, Row, Table
from cuwheel.support import quoting
from cuwheel_core.support import printable

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Severity

_LOOKS: dict[Look, str] = {"good": "✅", "fair": "✅", "poor": "⚠️", "bad": "❌", "none": "❔"}
_SEVERITIES: dict[Severity, str] = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}  # noqa: RUF001 - the sign for a note


def text(document: Document) -> str:
    parts = [render(each) for each in document.blocks]
    return "\n\n".join(filter(None, parts)) + "\n"


def render(block: Block) -> str:
    """Empty where there is nothing that Markdown could show."""
    match block:
        case Heading():
            return f"### {printable.markdown(block.text)}"
        case Paragraph():
            return printable.markdown(block.text)
        case Verbatim():
            return printable.markdown_block(block.lines)
        case Facts():
            return _facts(block.rows)
        case Table():
            return _table(block)
        case Matrix():
            return _matrix(block)
        case Findings():
            return _findings(block)
        case HeatMap():
            return _table(block.brief) if block.brief else ""
        case Timeline() | Chart():
            return ""


def _facts(rows: Sequence[Row]) -> str:
    return "\n".join(f"- **{printable.markdown(row.name)}** {printable.markdown(row.value)}" for row in rows)


def _table(block: Table) -> str:
    return _drawn(block.columns, ([_cell(cell) for cell in row] for row in block.rows))


def _matrix(block: Matrix) -> str:
    columns = [Column(""), *map(Column, block.columns)]
    rows = ([_named(row), *map(_mark, marks)] for row, marks in zip(block.rows, block.cells, strict=True))
    return "\n\n".join(filter(None, (_drawn(columns, rows), _facts(block.meanings))))


def _findings(block: Findings) -> str:
    lines: list[str] = []
    for each in block.items:
        lines.append(f"- {_SEVERITIES[each.severity]} `{each.rule}` {printable.markdown(each.message)}")
        lines += [f"  - {printable.markdown(item)}" for item in each.evidence]
        for index, fix in enumerate(each.fixes):
            lines.append(f"  - {'or' if index else 'fix'}: {printable.markdown(fix.text)}".rstrip())
            lines += [
                f"    {printable.markdown_code(quoting.command_of_fix(words, fix.shell))}" for words in fix.commands
            ]
    return "\n".join(lines)


def _drawn(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> str:
    head = [printable.markdown(each.title) for each in columns]
    rule = ["--:" if each.numeric else "---" for each in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _cell(cell: Cell) -> str:
    return printable.markdown(cell.text if isinstance(cell, Amount) else cell)


def _named(row: Row) -> str:
    return " ".join(filter(None, (f"**{printable.markdown(row.name)}**", printable.markdown(row.value))))


def _mark(mark: Mark) -> str:
    return " ".join(filter(None, (_LOOKS[mark.look], printable.markdown(mark.text), printable.markdown(mark.note))))
