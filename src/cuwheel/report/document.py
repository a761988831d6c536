"""The parts a report is made of. What they look like is the renderers' business."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


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
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Problem:
    severity: Severity
    rule: str
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Problems:
    items: tuple[Problem, ...]


Block: TypeAlias = Heading | Paragraph | Facts | Table | Problems


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    blocks: tuple[Block, ...]
