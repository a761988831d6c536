"""`cuwheel catalogue`: the document of its answer."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph
from cuwheel.report.tables import Cell, short, table
from cuwheel_core.support.wording import counted, size

if TYPE_CHECKING:
    from cuwheel.delivery.cataloguing import Catalogue, Newest, ProjectReach

_LEGEND = "'jit': compiled by the driver; 'partly': not all of it runs; 'no code': it has none that a GPU loads"
_EACH = f"The newest release that runs on each. {_LEGEND}"
_RANGES = (
    "On which compute capabilities the newest release runs, and which older one runs on others, as far as there is "
    f"one. {_LEGEND}"
)
_OUTCOMES = {"known": "known already", "over-budget": "over the budget"}
_COLUMNS = 4  # machines that have one each
_HOW = {"native": "", "compatible": "", "jit": " jit", "partial": " partly", "unknown": " no code"}


def document(answer: Catalogue, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(_headline(answer))]
    if answer.rows:
        shown = [each for each in answer.rows if verbose or each.outcome != "known"]
        rows: list[tuple[Cell, ...]] = [
            (each.name, each.version, f"{each.outcome}{f': {each.reason}' if each.reason else ''}") for each in shown
        ]
        if rows:
            blocks.append(table(("package", "version", "outcome"), rows))
        read = f"; {size(answer.downloaded)} were read of {size(answer.bytes_of_wheels)} of wheels"
        held = f"{counted(answer.wheels, 'wheel')} held in {size(answer.size)}"
        blocks.append(Paragraph(f"{held}{read if answer.downloaded else ''}"))
    if answer.projects:
        blocks += _newest(answer.projects)
    return Document("cuwheel catalogue", tuple(blocks))


def _headline(answer: Catalogue) -> str:
    if not answer.rows:
        of = f"{counted(answer.wheels, 'wheel')} of {counted(len(answer.projects), 'package')}, as of {answer.date}"
        return f"Catalogue in {answer.place}" + (f": {of}" if answer.projects else "")
    counts = Counter(each.outcome for each in answer.rows)
    told = [f"{counted(counts.pop('added', 0), 'wheel')} added"]
    told += [f"{count} {_OUTCOMES.get(outcome, outcome)}" for outcome, count in counts.items()]
    return f"{answer.place}: {', '.join(told)}"


def _newest(projects: tuple[ProjectReach, ...]) -> tuple[Block, ...]:
    machines = [each.machine for each in projects[0].newest]
    if len(machines) <= _COLUMNS:
        rows = ((each.name, each.versions[0], *(newest_words(one) for one in each.newest)) for each in projects)
        return Paragraph(_EACH), table((short("package"), short("newest"), *machines), rows)
    columns = (short("package"), short("newest"), "runs on", "older releases")
    return Paragraph(_RANGES), table(columns, ((each.name, each.versions[0], *_ranges(each)) for each in projects))


def newest_words(newest: Newest) -> str:
    """`2.7.1 jit`, or a dash."""
    return f"{newest.version}{_HOW.get(newest.outcome, '')}" if newest.version else "–"


def _ranges(project: ProjectReach) -> tuple[str, str]:
    """Where the newest release runs, and where which other one does."""
    current, older = [], []
    for (version, how), group in groupby(project.newest, key=lambda each: (each.version, _HOW.get(each.outcome, ""))):
        names = [each.machine for each in group]
        where = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        if version == project.versions[0]:
            current.append(where + how if len(names) < len(project.newest) else how.strip() or "all")
        elif version:
            older.append(f"{where}: {version}{how}")
    return ", ".join(current) or "–", ", ".join(older)
