"""`cuwheel catalogue`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.delivery.catalogue_reach import Newest, ProjectReach
from cuwheel.delivery.cataloguing import Filled, Row
from cuwheel.report.document import Column, Document, Heading, Paragraph, Table
from cuwheel.units import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.report.document import Block, Cell

_LEGEND = (
    "The newest release that runs on each. 'jit': compiled by the driver; 'partly': not all of it runs; "
    "'no code': none of them has device code"
)
_HOW = {"native": "", "compatible": "", "jit": " jit", "partial": " partly"}


class Catalogue(Struct, frozen=True, kw_only=True):
    """`rows`: what `add` did. `projects`: what `list` found. `wheels`: how many are held."""

    schema: Literal["cuwheel.catalogue/1"] = "cuwheel.catalogue/1"
    place: str
    date: str | None
    wheels: int
    downloaded: int = 0
    rows: tuple[Row, ...] = ()
    projects: tuple[ProjectReach, ...] = ()

    @property
    def succeeded(self) -> bool:
        return not any(each.outcome in ("failed", "over-budget") for each in self.rows)


def of_filled(place: str, filled: Filled) -> Catalogue:
    return Catalogue(place=place, date=None, wheels=filled.wheels, downloaded=filled.downloaded, rows=filled.rows)


def of_listed(place: str, date: str, wheels: int, projects: Iterable[ProjectReach]) -> Catalogue:
    return Catalogue(place=place, date=date, wheels=wheels, projects=tuple(projects))


def document(answer: Catalogue, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(f"Catalogue in {answer.place}")]
    if answer.rows:
        shown = [each for each in answer.rows if verbose or each.outcome != "known"]
        rows: list[tuple[Cell, ...]] = [
            (each.name, each.version, f"{each.outcome}{f': {each.reason}' if each.reason else ''}") for each in shown
        ]
        if rows:
            blocks.append(Table((Column("package"), Column("version"), Column("")), tuple(rows)))
        known = sum(each.outcome == "known" for each in answer.rows)
        added = sum(each.outcome == "added" for each in answer.rows)
        blocks.append(
            Paragraph(
                f"{added} added, {known} known already, {answer.wheels} held; {size(answer.downloaded)} were downloaded"
            )
        )
    if answer.projects:
        blocks += [
            Paragraph(_LEGEND),
            _table(answer.projects),
            Paragraph(f"{answer.wheels} wheels of {len(answer.projects)} packages, as of {answer.date}"),
        ]
    return Document("cuwheel catalogue", tuple(blocks))


def _table(projects: tuple[ProjectReach, ...]) -> Table:
    machines = [each.machine for each in projects[0].newest]
    rows: list[tuple[Cell, ...]] = [
        (
            each.name,
            each.versions[0],
            *(_cell(each, one) for one in each.newest),
        )
        for each in projects
    ]
    columns = (Column("package"), Column("newest"), *(Column(each) for each in machines))
    return Table(columns, tuple(rows))


def _cell(project: ProjectReach, newest: Newest) -> str:
    if not project.device_code:
        return "no code"
    return f"{newest.version}{_HOW.get(newest.outcome, '')}" if newest.version else "–"
