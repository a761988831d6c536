"""The parts a report is made of. What they look like is the renderers' business.

Structs, which are made in no time: the answers import them, also for JSON, which shows none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from cuwheel.report.drawings import Chart, Timeline
from cuwheel.report.tables import Facts, HeatMap, Matrix, Table
from cuwheel_core.support.finding import Finding


class Heading(Struct, frozen=True):
    text: str


class Paragraph(Struct, frozen=True):
    text: str


class Verbatim(Struct, frozen=True):
    """Lines for a shell or a file, copied or evaluated: never wrapped, nothing added."""

    lines: tuple[str, ...]


class Findings(Struct, frozen=True):
    items: tuple[Finding, ...]


def findings_section(items: Iterable[Finding], title: str = "Findings") -> tuple[Heading | Findings, ...]:
    """Nothing where there are none."""
    listed = tuple(items)
    return (Heading(title), Findings(listed)) if listed else ()


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
