"""What a report shows in rows: names with their values, tables, marks, and how much of each there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support.wording import size


class Row(Struct, frozen=True):
    """A name, what is so, and in small print where that was found. `command`: for a shell, on one line."""

    name: str
    value: str
    origin: str = ""
    command: bool = False


class Facts(Struct, frozen=True):
    rows: tuple[Row, ...]


class Column(Struct, frozen=True):
    """`numeric`: it stands at the right. `wrap`: False where its words stay on one line if there is room."""

    title: str
    numeric: bool = False
    wrap: bool = True


def figure(title: str) -> Column:
    return Column(title, numeric=True)


def short(title: str) -> Column:
    return Column(title, wrap=False)


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


def table(columns: Iterable[str | Column], rows: Iterable[tuple[Cell, ...]]) -> Table:
    """A column that is but a title holds text."""
    return Table(tuple(Column(each) if isinstance(each, str) else each for each in columns), tuple(rows))


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
