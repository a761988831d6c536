"""`cuwheel cache`: the answer and its document."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Amount, Facts, Row, Table, figure, short, table
from cuwheel.support.answer import Answer
from cuwheel.toolchains.store import AGAIN, Held, Pruning, Thing
from cuwheel_core.support.wording import counted, size

_DAY_S = 24 * 3600
_SHOWN = 10


class Kind(Struct, frozen=True, kw_only=True):
    """`oldest`, `newest`: when such a thing was last used, seconds since 1970. `removable`: whether --prune may."""

    name: str
    things: int
    bytes: int
    oldest: float | None
    newest: float | None
    removable: bool
    again: str


class Cache(Answer, frozen=True, kw_only=True):
    """What is kept, after what was removed. `freed`: bytes of it; with `dry_run` what would be."""

    schema: Literal["cuwheel.cache/1"] = "cuwheel.cache/1"
    folder: str
    kinds: tuple[Kind, ...]
    bytes: int
    pruned: bool = False
    dry_run: bool = False
    removed: tuple[Thing, ...] = ()
    freed: int = 0
    held: tuple[Held, ...] = ()

    @property
    def succeeded(self) -> bool:
        return True


def answer_of(folder: Path, found: Sequence[Thing], pruning: Pruning | None) -> Cache:
    gone = set(pruning.removed) if pruning and not pruning.dry_run else set()
    stay = [each for each in found if each not in gone]
    kinds = []
    for name, again in AGAIN.items():
        if listed := [each for each in stay if each.kind == name]:
            kinds.append(
                Kind(
                    name=name,
                    things=len(listed),
                    bytes=sum(each.size for each in listed),
                    oldest=min(each.used for each in listed),
                    newest=max(each.used for each in listed),
                    removable=bool(again),
                    again=again,
                )
            )
    return Cache(
        folder=str(folder),
        kinds=tuple(kinds),
        bytes=sum(each.bytes for each in kinds),
        pruned=pruning is not None,
        dry_run=bool(pruning and pruning.dry_run),
        removed=pruning.removed if pruning else (),
        freed=sum(each.size for each in pruning.removed) if pruning else 0,
        held=pruning.held if pruning else (),
    )


def document(answer: Cache, *, verbose: bool) -> Document:
    return Document("cuwheel cache", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Cache, *, verbose: bool) -> Iterator[Block]:
    if answer.pruned:
        words = "would be removed (--dry-run)" if answer.dry_run else "removed"
        things = counted(len(answer.removed), "thing")
        yield Heading(f"{things} {words}: {size(answer.freed)}" if answer.removed else "nothing to remove")
        if answer.removed:
            yield _removed(answer, len(answer.removed) if verbose else _SHOWN)
        if answer.held:
            yield Heading(f"{size(sum(each.size for each in answer.held))} stay")
            yield Facts(tuple(Row(each.path, each.why) for each in answer.held[: None if verbose else _SHOWN]))
    yield Heading(f"{answer.folder}: {size(answer.bytes)}")
    columns = (short("kind"), figure("things"), figure("size"), short("last used"), "if removed")
    rows = (
        (
            each.name,
            str(each.things),
            Amount(size(each.bytes), each.bytes),
            _ago(each.newest or 0),
            each.again or "never removed",
        )
        for each in answer.kinds
    )
    yield table(columns, rows)
    if not answer.pruned and any(each.removable for each in answer.kinds):
        yield Verbatim(
            (
                "Empty it: cuwheel cache --prune --most 0",
                "Only what nobody used for a month: cuwheel cache --prune --older-than 30d",
            )
        )
    if any(each.name == "undo" for each in answer.kinds):
        yield Paragraph("What an undo needs goes with cuwheel slim --commit ENVIRONMENT.")


def _removed(answer: Cache, most: int) -> Table:
    columns = (short("kind"), figure("size"), short("last used"), "what")
    rows = [
        (each.kind, Amount(size(each.size), each.size), _ago(each.used), each.path.removeprefix(answer.folder)[1:])
        for each in sorted(answer.removed, key=lambda each: -each.size)[:most]
    ]
    rest = len(answer.removed) - most
    return table(columns, (*rows, *([("", "", "", f"and {rest:,} more")] if rest > 0 else [])))


def _ago(used: float) -> str:
    days = int((time.time() - used) / _DAY_S)
    return "today" if days < 1 else f"{counted(days, 'day')} ago"
