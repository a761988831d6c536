"""A document on a terminal: readable at 80 columns, without colour, and whatever the strings contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import TextWrapper
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim
from cuwheel.report.drawings import Chart, Timeline
from cuwheel.report.tables import Amount, Cell, Facts, HeatMap, MarkedLine, Matrix, Table
from cuwheel.support import quoting
from cuwheel_core.support import printable

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding, Fix

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
            console.print(render(block), soft_wrap=isinstance(block, Verbatim | Facts), crop=False)
    # Columns are padded to the full width; nobody wants that in a pasted report.
    stream.write(printable.output("".join(line.rstrip() + "\n" for line in capture.get().splitlines())))


def render(block: Block) -> RenderableType:
    match block:
        case Heading():
            return _Words(block.text, style="bold")
        case Paragraph():
            return _Words(block.text)
        case Verbatim():
            return Text(printable.Lines(block.lines))
        case Facts():
            return _Facts(block)
        case Table():
            return _FittedTable(block)
        case Matrix():
            return _MarkedLines(block.brief) if block.brief else _matrix(block)
        case Findings():
            return _findings(block)
        case HeatMap() if block.brief:
            legend = Text(f"  {printable.line(block.legend)}", style="dim")
            return Group(_FittedTable(block.brief), legend)
        case HeatMap() | Timeline() | Chart():  # a page has room for them
            return Group()


class _Words:
    """Text that goes on between words alone, and below its own beginning: a name or a path is not broken."""

    def __init__(self, text: str, *, style: str = "", inside: int = 0, mark: str = "", mark_style: str = "") -> None:
        self._text, self._style, self._inside = text, style, inside
        self._mark, self._mark_style = mark, mark_style

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        mark = self._mark
        for number, line in enumerate(printable.lines(self._text)):
            for part in _lines_of_words(line if number else f"{mark}{line}", options.max_width - self._inside):
                text = Text(" " * self._inside + part, style=self._style, no_wrap=True, overflow="ignore")
                if mark:
                    text.stylize(self._mark_style, self._inside, self._inside + len(mark))
                    mark = ""
                yield text


class _Facts:
    """Names in a column, and values that go on between words alone: a path or an address is not broken."""

    def __init__(self, block: Facts) -> None:
        self._rows = [(printable.line(row.name), row) for row in block.rows]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(map(cell_len, (name for name, _ in self._rows)), default=0)
        for name, row in self._rows:
            left = Text(f"  {name}{' ' * (names - cell_len(name))}  ", style="cyan")
            for text, style in ((row.value, ""), (row.origin, "dim")):
                if not text and style:
                    continue
                whole = row.command and not style
                for line in printable.lines(text):
                    for part in [line] if whole else _lines_of_words(line, options.max_width - names - 4):
                        yield Text.assemble(left, (part, style), no_wrap=True, overflow="ignore")
                        left = Text(" " * (names + 4))


def _lines_of_words(line: str, width: int) -> list[str]:
    """At most so wide, but for a word that is wider."""
    wrapper = TextWrapper(max(width, _LEAST_WIDTH), break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" ")))
    wrapper.drop_whitespace = wrapper.replace_whitespace = True
    return wrapper.wrap(line) or [""]


class _FittedTable:
    """Columns that stay on one line do so where there is room; elsewhere they fold between words. Nothing is cut off.

    Where a word has no room, such as the name of a wheel, its column leaves the table: each of its cells gets a line of
    its own above the rest of its row.
    """

    def __init__(self, block: Table) -> None:
        self._columns = block.columns
        self._barred = [any(_has_bar(row[index]) for row in block.rows) for index in range(len(block.columns))]
        self._rows = [[_cell(cell) for cell in row] for row in block.rows]
        self._measures: dict[int, list[Measurement]] = {}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        options = options.update(width=options.max_width - 2)
        kept = list(range(len(self._columns)))
        while not (fitted := self._fit(console, options, kept))[1]:
            texts = [each for each in kept if not self._columns[each].numeric and not self._barred[each]]
            if not texts or len(kept) == 1:
                break
            # What the row is about stands above it best; else what is widest.
            without_first = [each for each in kept if each != texts[0]]
            measured = {each: max(one.minimum for one in self._measured(console, options, each)) for each in texts}
            widest = max(texts, key=measured.__getitem__)
            kept.remove(texts[0] if self._fit(console, options, without_first)[1] else widest)
        table, _ = fitted
        apart = [index for index in range(len(self._columns)) if index not in kept]
        if not apart:
            for row in self._rows:
                table.add_row(*row)
            yield Padding(table, (0, 0, 0, 2))
            return
        yield Text("  " + "  ".join(printable.line(self._columns[index].title) for index in apart), style="bold")
        titles = [self._columns[index].title for index in kept]
        if any(titles):
            yield Padding(table, (0, 0, 0, 4))
        for row in self._rows:
            for index in apart:
                for line in _lines_of_words(row[index].plain, options.max_width) if row[index].plain else ():
                    yield Text(f"  {line}", no_wrap=True, overflow="ignore")
            yield Padding(_of_one_row(table, [row[index] for index in kept]), (0, 0, 0, 4))

    def _title(self, index: int) -> str:
        title = printable.line(self._columns[index].title)
        return title.rjust(_FIGURE_WIDTH) if self._barred[index] else title

    def _measured(self, console: Console, options: ConsoleOptions, index: int) -> list[Measurement]:
        """Measures the title, and each cell: once, as there may be thousands of rows, each asked for by several."""
        if index not in self._measures:
            texts = (Text(self._title(index)), *(row[index] for row in self._rows))
            self._measures[index] = [Measurement.get(console, options, each) for each in texts]
        return self._measures[index]

    def _fit(self, console: Console, options: ConsoleOptions, kept: Sequence[int]) -> tuple[RichTable, bool]:
        """A table of these columns, without its rows; and whether all words have room in it."""
        columns = [self._columns[index] for index in kept]
        barred = [self._barred[index] for index in kept]
        gap = 1 if len(columns) > _MANY_COLUMNS else 2
        table = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        whole, words, least, by_title = [], [], [], []
        for place, index in enumerate(kept):
            column = columns[place]
            measured = self._measured(console, options, index)
            by_title.append(all(each.maximum < measured[0].maximum for each in measured[1:]))
            whole.append(max(each.maximum for each in measured))
            words.append(max(each.minimum for each in measured))
            least.append(words[place] if column.numeric else min(words[place], _LEAST_WIDTH))
            table.add_column(
                Text(self._title(index)),
                justify="right" if column.numeric and not barred[place] else "left",
                no_wrap=column.numeric or not column.wrap,
                overflow="fold",
            )
        room = options.max_width - gap * (len(columns) - 1) - (2 if len(kept) < len(self._columns) else 0)
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
        if rest < 0:
            return table, False
        for count, index in zip(range(len(folding), 0, -1), folding, strict=True):
            more = min(whole[index] - words[index], rest // count)
            table.columns[index].width = words[index] + more
            rest -= more
        for each, width in zip(table.columns, whole, strict=True):  # the same in every row
            each.width = each.width or width
        return table, True


def _of_one_row(table: RichTable, cells: Sequence[Text]) -> RichTable:
    """A row in the columns of a table."""
    made = RichTable(box=None, pad_edge=False, padding=table.padding, show_header=False)
    for each in table.columns:
        made.add_column(justify=each.justify, no_wrap=each.no_wrap, overflow=each.overflow, width=each.width)
    made.add_row(*cells)
    return made


def _has_bar(cell: Cell) -> bool:
    return isinstance(cell, Amount) and cell.share is not None


def _cell(cell: Cell) -> Text:
    if isinstance(cell, str):
        return Text("\n".join(printable.lines(_shortened(cell))))
    if cell.share is None:
        return Text(printable.line(_shortened(cell.text)))
    eighths = max(1, round(cell.share * _BAR_WIDTH * 8)) if cell.value else 0
    bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
    return Text.assemble(printable.line(cell.text).rjust(_FIGURE_WIDTH), " ", (bar, "green"))


class _MarkedLines:
    """Mark, name and machine in columns; why goes on between words alone."""

    def __init__(self, lines: Sequence[MarkedLine]) -> None:
        self._lines = lines

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        shown = [[printable.line(each) for each in (line.mark.text, line.name, line.value)] for line in self._lines]
        marks, names, values = (max(map(cell_len, column)) for column in zip(*shown, strict=True))
        values = min(values, max(_LEAST_WIDTH, options.max_width // 3))
        room = max(options.max_width - marks - names - values - 8, 2 * _LEAST_WIDTH)
        for line, (mark, name, value) in zip(self._lines, shown, strict=True):
            why = [part for each in printable.lines(_shortened(line.why)) for part in _lines_of_words(each, room)]
            which = _lines_of_words(value, values)
            for number in range(max(len(why), len(which))):
                machine, text = (each[number] if number < len(each) else "" for each in (which, why))
                left = Text("  " + _padded("" if number else mark, marks) + "  ", style=_LOOK_STYLE[line.mark.look])
                right = f"{_padded('' if number else name, names)}  {_padded(machine, values)}  {text}"
                yield Text.assemble(left, right, no_wrap=True, overflow="ignore")


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _matrix(block: Matrix) -> RenderableType:
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", overflow="fold")
    for column in block.columns:
        table.add_column(Text(printable.line(column)), overflow="fold")
    for row, marks in zip(block.rows, block.cells, strict=True):
        value = printable.line(_shortened(row.value))
        name = Text.assemble(printable.line(row.name), (f"  {value}" if value else "", "dim"))
        table.add_row(
            name,
            *(
                Text.assemble((printable.line(mark.text), _LOOK_STYLE[mark.look]), f" {printable.line(mark.note)}")
                for mark in marks
            ),
        )
    return Group(Padding(table, (0, 0, 0, 2)), _Facts(Facts(block.meanings)))


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
    return Group(*shown, *(Text(f"{printable.line(each)}: --json has them all", style="dim") for each in more))


def _finding(item: Finding) -> RenderableType:
    head = Text.assemble("  ", (item.severity, _SEVERITY_STYLE[item.severity]), f"  {printable.line(item.rule)}")
    lines: list[RenderableType] = [_Words(_shortened(item.message), inside=4)]
    for each in item.evidence:
        because = "" if each.startswith("and ") else "because "  # `and 2 more`
        lines.append(_Words(_shortened(each), style="dim", inside=4, mark=because))
    for index, fix in enumerate(item.fixes):
        lines += _fix(fix, "or: " if index else "fix: ")
    return Group(head, *lines)


def _fix(fix: Fix, mark: str) -> list[RenderableType]:
    """Its text wrapped, its commands each on a line of its own that can be copied."""
    commands = [printable.line(quoting.command_of_fix(each, fix.shell)) for each in fix.commands]
    if fix.text or not commands:
        return [
            _Words(fix.text, inside=4, mark=mark, mark_style="bold green"),
            *(Text(f"      {each}", no_wrap=True, overflow="ignore") for each in commands),
        ]
    first, *others = commands
    lines = [Text.assemble("    ", (mark, "bold green"), first, no_wrap=True, overflow="ignore")]
    return [*lines, *(Text(f"    {'':{len(mark)}}{each}", no_wrap=True, overflow="ignore") for each in others)]


def _shortened(text: str) -> str:
    """Of a stranger; what has lines of ours is as long as we made it."""
    return text if isinstance(text, printable.Lines) or len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
