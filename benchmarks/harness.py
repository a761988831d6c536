"""What the benchmarks share: alternate, take the best of each, compare with a floor, print one table."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
SHARE_OF_BEST = 0.8
BIN = Path(sys.executable).parent  # not resolved: the environment's, with the cuwheel command in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """`best`: the best figure measured on a quiet machine of two cores. The floor is 80 % of it: a loss is seen.

    `promised`: a floor that is a promise instead, for figures so small that noise decides, and for limits in docs.
    """

    what: str
    ours: str
    theirs: str
    value: float
    best: float = 0.0
    promised: float = 0.0
    unit: str = "×"
    at_most: bool = False

    @property
    def floor(self) -> float:
        return self.promised or (self.best / SHARE_OF_BEST if self.at_most else self.best * SHARE_OF_BEST)

    @property
    def passed(self) -> bool:
        return self.value <= self.floor if self.at_most else self.value >= self.floor


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def processor_seconds(work: Callable[[], object]) -> float:
    """Of the programs that `work` starts and waits for: what a busy machine changes least."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def command(*words: str | Path) -> Callable[[], object]:
    """A whole program, its answer thrown away."""
    line = [str(word) for word in words]
    return lambda: subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def alternate(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    repeats: Mapping[str, int] | None = None,
    timed: Callable[[Callable[[], object]], float] = seconds,
) -> dict[str, float]:
    """The best of each, run in turns: what else the machine does only ever adds, and falls on all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()  # once unmeasured: files into memory, bytecode written
    for _ in range(rounds):
        for name, work in works.items():
            taken[name] += [timed(work) for _ in range((repeats or {}).get(name, 1))]
    return {name: min(each) for name, each in taken.items()}


def shown(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def finish(measures: Sequence[Measure]) -> int:
    """Print the table; 1 where a floor is missed."""
    print("| measure | cuwheel | peer | result | floor | |")
    print("|---|---|---|---|---|---|")
    for each in measures:
        bound = f"at {'most' if each.at_most else 'least'} {each.floor:.3g} {each.unit}"
        verdict = "ok" if each.passed else "**missed**"
        print(f"| {each.what} | {each.ours} | {each.theirs} | {each.value:.1f} {each.unit} | {bound} | {verdict} |")
    return 0 if all(each.passed for each in measures) else 1
