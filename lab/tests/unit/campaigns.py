"""Journals made to order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel_lab.measuring import journal
from cuwheel_lab.measuring.journal import End, Header, Line, Outcome, Start, StartState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

COLD = StartState(asked="as it is", jit_cache="the user's", page_cache="kept")


def header(axes: Mapping[str, tuple[str, ...]], conditions: Sequence[dict[str, str]], repeats: int = 10) -> Header:
    return Header(
        tool="cuwheel",
        file="TRIALS.toml",
        fingerprint="f",
        axes=dict(axes),
        conditions=tuple(conditions),
        repeats=repeats,
        seed=1,
        mark="m",
        at=0.0,
        traced=False,
    )


def written(folder: Path, first: Header, trials: Iterable[tuple[int, Outcome | None]], boot: str = "one") -> Path:
    """`trials`: the condition and how it ended, None for one that never did."""
    repeats: dict[int, int] = {}
    lines = [Line(header=first)]
    for number, (condition, outcome) in enumerate(trials, 1):
        repeat = repeats[condition] = repeats.get(condition, -1) + 1
        lines.append(Line(start=Start(trial=number, condition=condition, repeat=repeat, at=1.0, boot=boot, cold=COLD)))
        if outcome:
            lines.append(Line(end=End(trial=number, outcome=outcome, at=2.0, seconds=1.0, message=outcome)))
    with journal.open_journal(folder) as writer:
        for line in lines:
            writer.add(line)
    return folder
