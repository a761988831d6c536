"""The first answer on a small library, `--json`: against a bare interpreter, and against an early commit.

python benchmarks/bench_answer.py [COMMIT]     another commit to compare with; it needs a clone with its history
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, ROOT, Measure, alternate, finish, processor_seconds, shown

if TYPE_CHECKING:
    from collections.abc import Callable

BEFORE = "bffa1d8"
ROUNDS = 25
LIBRARY = ROOT / "tests" / "fixtures" / "bin" / "plain-130.so"
# Against the early commit it must be no slower, and against a bare interpreter at most so many times as long.
NO_SLOWER = 1.0
MOST = {"inspect": 6.0, "check": 9.0}
ANSWERS = {"inspect": ("inspect", LIBRARY), "check": ("check", LIBRARY, "--on", "h100")}


def sources(commit: str, folder: Path) -> Path | None:
    """cuwheel as it was; None where there is no history to take it from."""
    packed = folder / "before.tar"
    words = ["git", "-C", str(ROOT), "archive", "--output", str(packed), commit, "src"]
    if subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode:
        return None
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)  # noqa: S202 - git's own
    return folder / "src"


def answering(source: Path, *words: str | Path) -> Callable[[], object]:
    """A whole process, with bytecode as an installed package has it."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPATH"] = str(source)
    line = [str(each) for each in (BIN / "python", "-m", "cuwheel", *words, "--json")]
    return lambda: subprocess.run(line, check=True, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(words: list[str]) -> int:
    commit = words[0] if words else BEFORE
    with tempfile.TemporaryDirectory() as folder:
        before = sources(commit, Path(folder))
        if before is None:
            print(f"not measured: there is no commit {commit} here to compare with", file=sys.stderr)
            return 0
        works: dict[str, Callable[[], object]] = {}
        for verb, asked in ANSWERS.items():
            works |= {verb: answering(ROOT / "src", *asked), f"{verb} before": answering(before, *asked)}
        bare = [str(BIN / "python"), "-c", "pass"]
        works["bare"] = lambda: subprocess.run(bare, check=True)
        taken = alternate(works, ROUNDS, timed=processor_seconds)
    return finish(
        [
            measure
            for verb in ANSWERS
            for measure in (
                Measure(
                    what=f"first answer of `cuwheel {verb} --json` on a small library, against a bare interpreter",
                    ours=shown(taken[verb]),
                    theirs=shown(taken["bare"]),
                    value=taken[verb] / taken["bare"],
                    promised=MOST[verb],
                    at_most=True,
                ),
                Measure(
                    what=f"the same against {commit}",
                    ours=shown(taken[verb]),
                    theirs=shown(taken[f"{verb} before"]),
                    value=taken[f"{verb} before"] / taken[verb],
                    promised=NO_SLOWER,
                ),
            )
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
