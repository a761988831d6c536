"""The journal of a trial: two lines on the disk, against two bare synchronised writes of as many bytes.

python benchmarks/bench_trials.py [FOLDER]     where to write; by default the current folder's file system
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import Measure, alternate, finish, shown

from cuwheel.support import codec
from cuwheel_lab.measuring import analysis, journal
from cuwheel_lab.measuring.journal import End, Header, Host, Line, Start, StartState

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 300
TRIALS = 10_000
COLD = StartState(asked="cold", jit_cache="empty", page_cache="dropped")


def lines(number: int, condition: int = 0) -> tuple[Line, Line]:
    start = Start(
        trial=number,
        condition=condition,
        repeat=number,
        at=1.7e9,
        boot="b" * 36,
        cold=COLD,
        host=Host(memory_available=1),
    )
    return Line(start=start), Line(end=End(trial=number, outcome="passed", at=1.7e9, seconds=1.25, status=0))


def journalled(writer: journal.Writer) -> Callable[[], object]:
    def write() -> None:
        for each in lines(1):
            writer.add(each)

    return write


def bare(handle: int, data: tuple[bytes, ...]) -> Callable[[], object]:
    def write() -> None:
        for each in data:
            os.write(handle, each)
            os.fsync(handle)

    return write


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory(dir=words[0] if words else ".") as name:
        folder = Path(name)
        handle = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        data = tuple(codec.encode(each) + b"\n" for each in lines(1))
        with journal.open_journal(folder / "journal") as writer:
            taken = alternate({"journal": journalled(writer), "bare": bare(handle, data)}, ROUNDS)
        os.close(handle)
        read = alternate({"report": lambda: analysis.analyse(_many(folder)), "lines": lambda: _lines(_many(folder))}, 3)
    print(f"a journal's two lines: {shown(taken['journal'])}, bare: {shown(taken['bare'])}", file=sys.stderr)
    return finish(
        [
            Measure(
                what="journal of a trial",
                ours="start and end, synchronised",
                theirs="two bare synchronised writes",
                value=taken["journal"] / taken["bare"],
                best=1.0,
                at_most=True,
            ),
            Measure(
                what=f"report of {TRIALS:,} trials",
                ours="read, tested, judged",
                theirs="its lines read once",
                value=read["report"] / read["lines"],
                best=1.6,
                at_most=True,
            ),
        ]
    )


def _many(folder: Path) -> Path:
    """A journal of as many trials, under sixteen conditions."""
    place = folder / "many"
    if not place.is_dir():
        place.mkdir()
        axes: dict[str, tuple[str, ...]] = dict.fromkeys("abcd", ("0", "1"))
        conditions = tuple({each: str(number >> bit & 1) for bit, each in enumerate("abcd")} for number in range(16))
        first = Header(
            tool="",
            file="",
            fingerprint="",
            axes=axes,
            conditions=conditions,
            repeats=1,
            seed=1,
            mark="",
            at=0,
            traced=False,
        )
        made = [Line(header=first)] + [each for number in range(TRIALS) for each in lines(number, number % 16)]
        (place / journal.NAME).write_bytes(b"".join(codec.encode(each) + b"\n" for each in made))
    return place


def _lines(folder: Path) -> int:
    return sum(1 for _ in journal.read_lines(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
