"""Publishing one wheel more costs by what is new, not by what is there: 10,000 wheels against 100, in turns.

Once with the wheels of 100 projects, once with all of one project, whose page then has 10,000 links, and once more with
that project in the channels of a CUDA and a torch version, which makes three such pages.

And publishing many at once does not wait for the disk at each: the time it takes against its processor time.
"""

from __future__ import annotations

import base64
import hashlib
import resource
import sys
import tempfile
import zipfile
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, Measure, alternate, command, finish, seconds, shown

import cuwheel

if TYPE_CHECKING:
    from collections.abc import Callable

FEW, MANY = 100, 10_000
ROUNDS = 9
ROUNDS_OF_MANY = 3
AT_ONCE = 2_000


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measures = [
            _compared(folder / "spread", 100, "of 100 projects", 1.1),
            _compared(folder / "one", 1, "of one project", 1.5),
            _compared(folder / "channels", 1, "of one project in two channels", 1.8, "+cu130torch2.11"),
        ]
        measures.append(_waiting(folder / "many"))
    return finish(measures)


def _waiting(folder: Path) -> Measure:
    """Each wheel is three files, which are synced. What else the machine does counts as waiting: the best of some."""
    for number in range(AT_ONCE):
        _wheel(folder / "dist", number, 100, "")
    rounds = []
    for number in range(ROUNDS_OF_MANY):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        work = command(BIN / "cuwheel", "publish", folder / "dist", "--to", folder / str(number), "--quiet", "--json")
        wall = seconds(work)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rounds.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    wall, processor = min(rounds, key=lambda each: each[0] / each[1])
    return Measure(
        what=f"publish {AT_ONCE:,} wheels at once: the time it takes / its processor time",
        ours=shown(wall),
        theirs=shown(processor),
        value=wall / processor,
        promised=2,
        at_most=True,
    )


def _compared(folder: Path, projects: int, words: str, best: float, label: str = "") -> Measure:
    works = {str(size): _adding(folder / str(size), size, projects, label) for size in (FEW, MANY)}
    taken = alternate(works, ROUNDS)
    return Measure(
        what=f"publish one wheel more where there are {MANY:,} {words} / where there are {FEW}",
        ours=shown(taken[str(MANY)]),
        theirs=shown(taken[str(FEW)]),
        value=taken[str(MANY)] / taken[str(FEW)],
        best=best,
        at_most=True,
    )


def _adding(folder: Path, size: int, projects: int, label: str) -> Callable[[], object]:
    """Publishes another wheel each time it is called."""
    index, numbers = folder / "index", count(size)
    for start in range(0, size, AT_ONCE):
        numbered = range(start, min(start + AT_ONCE, size))
        cuwheel.publish([_wheel(folder / "dist", number, projects, label) for number in numbered], to=index)

    def add() -> None:
        made = _wheel(folder / "new", next(numbers), projects, label)
        command(BIN / "cuwheel", "publish", made, "--to", index, "--quiet", "--json")()

    return add


def _wheel(folder: Path, number: int, projects: int, label: str) -> Path:
    name, version = f"project{number % projects}", f"1.{number}{label}"
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}/__init__.py": b"",
        f"{info}/licenses/LICENSE": b"do as you like\n",
        f"{info}/METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in members.items()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
