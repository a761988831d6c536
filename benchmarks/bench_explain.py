"""`cuwheel explain` on a megabyte of log, beyond start-up; and on text made to be slow."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from harness import BIN, Measure, alternate, command, finish, shown

ROUNDS = 7
SIZE = 1_000_000
LINES = (
    "[{0}/400] /usr/local/cuda-12.4/bin/nvcc -I/venv -c src/k{0}.cu -o k{0}.o -gencode arch=compute_90,code=sm_90",
    'src/x{0}.cu(12): warning #177-D: variable "a" was declared but never referenced',
    '          detected during instantiation of "void f<T>(T) [with T=float]" at line {0}',
    "copying build/lib.linux-x86_64/ops/m{0}.py -> /tmp/pip-build-env-{0}/out",
    "2026-01-02T03:04:05.1234567Z -- Found thing {0} at /usr/lib/x86_64-linux-gnu/lib{0}.so",
    '  File "/venv/lib/python3.11/site-packages/torch/utils/cpp_extension.py", line {0}, in load',
)
LAST = "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder, "short.log"), Path(folder, "long.log")
        short.write_text(LAST)
        long.write_text(_megabyte() + LAST)
        works = {
            "short": command(BIN / "cuwheel", "explain", short, "--json"),
            "long": command(BIN / "cuwheel", "explain", long, "--json"),
        }
        taken = alternate(works, ROUNDS)
    measure = Measure(
        what="a megabyte of log explained, less a log of one line",
        ours=shown(taken["long"]),
        theirs=shown(taken["short"]),
        value=taken["long"] - taken["short"],
        best=0.31,
        unit="s",
        at_most=True,
    )
    return finish([measure])


def _megabyte() -> str:
    choice = random.Random(3)  # noqa: S311 - a log, not a secret
    lines: list[str] = []
    size = 0
    while size < SIZE:
        lines.append(choice.choice(LINES).format(choice.randrange(10_000)) + "\n")
        size += len(lines[-1])
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
