"""A document on a terminal: readable at 80 columns, without colour, and whatever the strings contain."""

from __future__ import annotations

from collections import Counter
from functools import singledispatch
from textwrap import TextWrapper
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from cuwheel.report.document import (
    Amount,
    Chart,
    Document,
    Facts,
    Findings,
    Heading,
    HeatMap,
    Matrix,
    Paragraph,
    Table,
    Timeline,
    Verbatim,
)
from cuwheel.support import wording

if TYPE_CHECKING:
    from cuwheel.report.document import Block, Cell
    from cuwheel.support.finding import Finding

_BAR_WIDTH = 12
_MANY_COLUMNS = 8
_FIGURE_WIDTH = 7  # "26.5 MB"
_LEAST_WIDTH = 10  # of a column that folds, where its words are longer
_MOST_OF_A_RULE = 20  # a wheel may have thousands of broken libraries
_LONGEST_TEXT = 4000  # and a name of a megabyte in it
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_LOOK_STYLE = {"good": "green", "fair": "cyan", "poor": "yellow", "bad": "bold red", "none": "dim"}
_SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def write(document: Document, stream: TextIO) -> None:
    console = Console(file=stream, highlight=False, soft_wrap=False)
    with console.capture() as capture:
        for index, block in enumerate(document.blocks):
            if index and isinstance(block, Heading):
                console.print()
            console.print(render(block), soft_wrap=isinstance(block, Verbatim | Facts))
    # Columns are padded to the full width; nobody wants that in a pasted report.
    stream.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


@singledispatch
def render(block: Block) -> RenderableType:
    raise NotImplementedError(type(block).__name__)


@render.register
def _heading(block: Heading) -> RenderableType:
    return Text(wording.printable_line(block.text), style="bold")


@render.register
def _paragraph(block: Paragraph) -> RenderableType:
    text = wording.printable_text(block.text)
    inside = len(text) - len(text.lstrip(" ")) if "\n" not in text else 0  # also where it goes on in another line
    return Padding(Text(text[inside:]), (0, 0, 0, inside))


@render.register
def _verbatim(block: Verbatim) -> RenderableType:
    return Text(wording.printable_text("\n".join(block.lines)))


@render.register
def _facts(block: Facts) -> RenderableType:
    return _Facts(block)


class _Facts:
    """Names in a column, and values that go on between words alone: a path or an address is not broken."""

    def __init__(self, block: Facts) -> None:
        self._rows = [(wording.printable_line(row.name), row) for row in block.rows]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(map(cell_len, (name for name, _ in self._rows)), default=0)
        for name, row in self._rows:
            left = Text(f"  {name}{' ' * (names - cell_len(name))}  ", style="cyan")
            for text, style in ((row.value, ""), (row.origin, "dim")):
                if not text and style:
                    continue
                for line in wording.printable_text(text).split("\n"):
                    for part in _lines_of_words(line, options.max_width - names - 4):
                        yield Text.assemble(left, (part, style), no_wrap=True, overflow="ignore")
                        left = Text(" " * (names + 4))


def _lines_of_words(line: str, width: int) -> list[str]:
    """At most so wide, but for a word that is wider."""
    wrapper = TextWrapper(max(width, _LEAST_WIDTH), break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" ")))
    wrapper.drop_whitespace = wrapper.replace_whitespace = True
    return wrapper.wrap(line) or [""]


@render.register
def _table(block: Table) -> RenderableType:
    return Padding(_FittedTable(block), (0, 0, 0, 2))


class _FittedTable:
    """Columns that stay on one line do so where there is room; elsewhere they fold, and nothing is cut off."""

    def __init__(self, block: Table) -> None:
        self._block = block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, rows = self._block.columns, [[_cell(cell) for cell in row] for row in self._block.rows]
        gap = 1 if len(columns) > _MANY_COLUMNS else 2
        table = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        whole, words, least, by_title, barred = [], [], [], [], []
        for index, column in enumerate(columns):
            barred.append(any(_has_bar(row[index]) for row in self._block.rows))
            title = column.title.rjust(_FIGURE_WIDTH) if barred[index] else column.title
            measured = [
                Measurement.get(console, options, each) for each in (Text(title), *(row[index] for row in rows))
            ]
            by_title.append(all(each.maximum < measured[0].maximum for each in measured[1:]))
            whole.append(max(each.maximum for each in measured))
            words.append(max(each.minimum for each in measured))
            least.append(words[index] if column.numeric else min(words[index], _LEAST_WIDTH))
            table.add_column(
                title,
                justify="right" if column.numeric and not barred[index] else "left",
                no_wrap=column.numeric or not column.wrap,
                overflow="fold",
            )
        room = options.max_width - gap * (len(columns) - 1)
        # The widest of the texts first; then titles of two words over short figures; figures and their units last.
        # A bar may be cut.
        stiff = [index for index, column in enumerate(table.columns) if column.no_wrap and not barred[index]]
        stiff.sort(key=lambda index: (columns[index].numeric, not by_title[index], -whole[index]), reverse=True)
        needed = [w if column.no_wrap else n for w, n, column in zip(whole, least, table.columns, strict=True)]
        while stiff and sum(needed) > room:
            index = stiff.pop()
            if columns[index].numeric:  # between words alone: half a number is another number
                needed[index] = max(least[index], whole[index] - (sum(needed) - room))
                table.columns[index].width = needed[index]
            else:
                needed[index] = least[index]
            table.columns[index].no_wrap = False
        # Where all words have room, none is broken: what is left goes to the columns by turns, the least wanting first.
        folding = [index for index, each in enumerate(table.columns) if not each.no_wrap and each.width is None]
        folding.sort(key=lambda index: whole[index] - words[index])
        rest = room - sum(needed) - sum(words[index] - needed[index] for index in folding)
        if rest >= 0:
            for count, index in zip(range(len(folding), 0, -1), folding, strict=True):
                more = min(whole[index] - words[index], rest // count)
                table.columns[index].width = words[index] + more
                rest -= more
        for row in rows:
            table.add_row(*row)
        yield table


def _has_bar(cell: Cell) -> bool:
    return isinstance(cell, Amount) and cell.share is not None


def _cell(cell: Cell) -> Text:
    if isinstance(cell, str):
        return Text(wording.printable_text(cell))
    if cell.share is None:
        return Text(wording.printable_text(cell.text))
    eighths = max(1, round(cell.share * _BAR_WIDTH * 8)) if cell.value else 0
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
    return Text.assemble(cell.text.rjust(_FIGURE_WIDTH), " ", (bar, "green"))


@render.register
def _heat_map(block: HeatMap) -> RenderableType:
    return (
        Group(_table(block.brief), Text(f"  {wording.printable_line(block.legend)}", style="dim"))
        if block.brief
        else Group()
    )


@render.register
def _timeline(block: Timeline) -> RenderableType:  # noqa: ARG001 - the same
    return Group()


@render.register
def _chart(block: Chart) -> RenderableType:  # noqa: ARG001 - the same
    return Group()


@render.register
def _matrix(block: Matrix) -> RenderableType:
    if block.brief:
        lines = RichTable.grid(padding=(0, 2, 0, 0))
        for overflow in (False, False, True, True):
            lines.add_column(overflow="fold", no_wrap=not overflow)
        for line in block.brief:
            mark = Text(f"  {wording.printable_line(line.mark.text)}", style=_LOOK_STYLE[line.mark.look])
            lines.add_row(mark, *(Text(wording.printable_text(each)) for each in (line.name, line.value, line.why)))
        return lines
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for column in block.columns:
        table.add_column(wording.printable_line(column), overflow="fold")
    for row, marks in zip(block.rows, block.cells, strict=True):
        name = Text.assemble(
            wording.printable_line(row.name), (f"  {wording.printable_text(row.value)}" if row.value else "", "dim")
        )
        table.add_row(
            name,
            *(
                Text.assemble(
                    (wording.printable_line(mark.text), _LOOK_STYLE[mark.look]), f" {wording.printable_line(mark.note)}"
                )
                for mark in marks
            ),
        )
    return Group(Padding(table, (0, 0, 0, 2)), _facts(Facts(block.meanings)))


@render.register
def _findings(block: Findings) -> RenderableType:
    shown: list[RenderableType] = []
    seen: Counter[str] = Counter()
    for item in block.items:
        seen[item.rule] += 1
        if seen[item.rule] <= _MOST_OF_A_RULE:
            shown.append(_finding(item))
    more = (
        f"  and {count - _MOST_OF_A_RULE:,} more of {rule}" for rule, count in seen.items() if count > _MOST_OF_A_RULE
    )
    return Group(*shown, *(Text(f"{wording.printable_line(each)}: --json has them all", style="dim") for each in more))


def _finding(item: Finding) -> RenderableType:
    head = Text.assemble(
        "  ", (item.severity, _SEVERITY_STYLE[item.severity]), f"  {wording.printable_line(item.rule)}"
    )
    lines = [Text(wording.printable_text(_shortened(item.message)))]
    for each in item.evidence:
        because = "" if each.startswith("and ") else "because "  # `and 2 more`
        lines.append(Text(because + wording.printable_text(_shortened(each)), style="dim"))
    if item.fix:
        lines.append(Text.assemble(("fix: ", "bold green"), wording.printable_text(item.fix)))
    return Group(head, Padding(Group(*lines), (0, 0, 0, 4)))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
