"""The parts a report is made of. What they look like is the renderers' business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cuwheel.finding import Finding


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines for a shell or a file, copied or evaluated: never wrapped, nothing added."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A name, what is so, and in small print where that was found."""

    name: str
    value: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    numeric: bool = False
    wrap: bool = True


@dataclass(frozen=True, slots=True)
class Amount:
    """A number as people read it, the number itself to sort by, and its share of the whole as a bar."""

    text: str
    value: float
    share: float | None = None


Cell: TypeAlias = str | Amount


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows against columns, each cell shaded by its share. A page has room for it; a terminal shows `brief`."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[Amount, ...], ...]
    brief: Table | None = None
    legend: str = ""  # of `brief`


Look: TypeAlias = Literal["good", "fair", "poor", "bad", "none"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A word that says it all, how it looks (never by colour alone), and a few words more."""

    text: str
    look: Look
    note: str = ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows against columns, each cell a mark that can be read across a room."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    cells: tuple[tuple[Mark, ...], ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasted, in seconds since the beginning. `kind` chooses its colour; `tip` says all of it.

    `parts`: shares of it, each with a kind of its own, drawn inside it in order.
    """

    text: str
    began: float
    seconds: float
    kind: str
    tip: str = ""
    parts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rows of bars over one axis, drawn from left to right. A page has room for it, a terminal has not.

    `legend`: kind → what it means. The rows are those of what ran at the same time, so their number tells how much did.
    """

    caption: str
    seconds: float
    rows: tuple[tuple[Bar, ...], ...]
    legend: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    items: tuple[Finding, ...]


Block: TypeAlias = Heading | Paragraph | Verbatim | Facts | Table | HeatMap | Matrix | Timeline | Findings


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    blocks: tuple[Block, ...]
