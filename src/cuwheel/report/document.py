"""The parts a report is made of. What they look like is the renderers' business.

Structs, which are made in no time: the answers import them, also for JSON, which shows none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.facts.arch import Arch, machine_code_first
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size

_TICKS, _MINUTE = 8, 60
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


class Heading(Struct, frozen=True):
    text: str


class Paragraph(Struct, frozen=True):
    text: str


class Verbatim(Struct, frozen=True):
    """Lines for a shell or a file, copied or evaluated: never wrapped, nothing added."""

    lines: tuple[str, ...]


class Row(Struct, frozen=True):
    """A name, what is so, and in small print where that was found."""

    name: str
    value: str
    origin: str = ""


class Facts(Struct, frozen=True):
    rows: tuple[Row, ...]


class Column(Struct, frozen=True):
    title: str
    numeric: bool = False
    wrap: bool = True


class Amount(Struct, frozen=True):
    """A number as people read it, the number itself to sort by, and its share of the whole as a bar."""

    text: str
    value: float
    share: float | None = None


Cell: TypeAlias = str | Amount
_NOTHING = Amount("", 0, 0)


class Table(Struct, frozen=True):
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


class HeatMap(Struct, frozen=True):
    """Rows against columns, each cell shaded by its share. A page has room for it; a terminal shows `brief`."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Amount, ...], ...]
    brief: Table | None = None
    legend: str = ""  # of `brief`


def map_of_code(
    caption: str, stored: Mapping[str, Mapping[Arch, int]], *, brief: Table | None = None, legend: str = ""
) -> HeatMap:
    """`stored`: of each library, the bytes of device code for each architecture."""
    columns = tuple(sorted({arch for each in stored.values() for arch in each}, key=machine_code_first))
    largest = max((count for each in stored.values() for count in each.values()), default=0) or 1
    cells = (
        tuple(
            Amount(size(each[arch]), each[arch], each[arch] / largest) if arch in each else _NOTHING for arch in columns
        )
        for each in stored.values()
    )
    return HeatMap(caption=caption, columns=columns, rows=tuple(stored), cells=tuple(cells), brief=brief, legend=legend)


Look: TypeAlias = Literal["good", "fair", "poor", "bad", "none"]


class Mark(Struct, frozen=True):
    """A word that says it all, how it looks (never by colour alone), and a few words more."""

    text: str
    look: Look
    note: str = ""


class MarkedLine(Struct, frozen=True):
    """What one line of a terminal says: how it is, of what, and why."""

    mark: Mark
    name: str
    value: str
    why: str


class Matrix(Struct, frozen=True):
    """Rows against columns, each cell a mark that can be read across a room. A terminal shows `brief`, if there is one.

    `meanings`: of the words in the marks.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    cells: tuple[tuple[Mark, ...], ...]
    meanings: tuple[Row, ...] = ()
    brief: tuple[MarkedLine, ...] = ()


class Bar(Struct, frozen=True):
    """Something that lasted, in seconds since the beginning. `kind` chooses its colour; `tip` says all of it.

    `parts`: shares of it, each with a kind of its own, drawn inside it in order.
    """

    text: str
    began: float
    seconds: float
    kind: str
    tip: str = ""
    parts: tuple[tuple[str, float], ...] = ()


class Timeline(Struct, frozen=True):
    """Rows of bars over one axis, drawn from left to right. A page has room for it, a terminal has not.

    `legend`: kind → what it means. The rows are those of what ran at the same time, so their number tells how much did;
    `labels`: where each row is something by itself, what it is.
    """

    caption: str
    seconds: float
    rows: tuple[tuple[Bar, ...], ...]
    legend: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...] = ()
    labels: tuple[str, ...] = ()


def lanes_of(bars: Iterable[Bar]) -> list[tuple[Bar, ...]]:
    """The rows that bars take: each in the first one that is free when it begins."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda each: each.began):
        free = next((each for each in lanes if each[-1].began + each[-1].seconds <= bar.began), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return [tuple(each) for each in lanes]


def ticks(end: float) -> tuple[tuple[float, str], ...]:
    """Of an axis of so many seconds."""
    step = next((each for each in _STEPS if end / each <= _TICKS), end / _TICKS)
    marks = [step * index for index in range(int(end / step) + 1)]
    return tuple((at, f"{at:g} s" if step < _MINUTE else f"{at / _MINUTE:g} min") for at in marks)


class Point(Struct, frozen=True):
    """`low`, `high`: the ends of its interval, drawn as whiskers."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    tip: str = ""


class Series(Struct, frozen=True):
    """`joined`: its points are connected by a line."""

    name: str
    points: tuple[Point, ...]
    joined: bool = True


class Chart(Struct, frozen=True):
    """Points over two axes. A page has room for it, a terminal has not.

    `x_ticks`, `y_ticks`: where something is written on an axis, and what.
    """

    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


class Findings(Struct, frozen=True):
    items: tuple[Finding, ...]


def last_lines(output: str, most: int | None) -> Verbatim:
    """The end of what a program printed; all of it where `most` is None."""
    lines = output.rstrip().splitlines()
    return Verbatim(tuple(lines if most is None or len(lines) <= most else ["…", *lines[-most:]]))


def hidden(count: int, what: str = "") -> Paragraph:
    """What a table leaves out: `  and 3 more (--verbose)`."""
    return Paragraph(f"  and {count:,} more{what and f' {what}'} (--verbose)")


Block: TypeAlias = Heading | Paragraph | Verbatim | Facts | Table | HeatMap | Matrix | Timeline | Chart | Findings


class Document(Struct, frozen=True):
    title: str
    blocks: tuple[Block, ...]
