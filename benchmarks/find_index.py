"""`find` on the public index: ten popular packages on five machines, against answers that were written down before.

Each question is asked by a process of its own with an empty cache: with the catalogue that ships, or without any.
Beside it runs `pip install --dry-run --no-deps` of the same name, which asks the same index for the same page.

    .venv/bin/python benchmarks/find_index.py              the tables of docs/why/find-on-the-index.md; needs the index
    .venv/bin/python benchmarks/find_index.py --only torch
    .venv/bin/python benchmarks/find_index.py --without    no catalogue: wheels are read, up to the budget
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cuwheel.support import codec

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--without", action="store_true", help="ask without the catalogue")
    words = parser.parse_args()
    table = codec.parse_toml((HERE / "find_index_expected.toml").read_bytes())
    rows = []
    for package, wanted in table["expected"].items():
        if words.only and package not in words.only:
            continue
        pip_s = _pip(package)
        for (machine, options), expected in zip(table["machines"].items(), wanted, strict=True):
            row = {"package": package, "machine": machine, "expected": expected, "pip_s": pip_s[0], "pip_cpu": pip_s[1]}
            row |= _find(package, [*options, *(["--catalogue", "none"] if words.without else [])])
            rows.append(row)
            print(json.dumps(row), flush=True)
    _summary("without the catalogue" if words.without else "with the catalogue", rows)
    return 0


def _summary(title: str, rows: list[dict[str, Any]]) -> None:
    right = sum(each["answer"] == each["expected"] for each in rows)
    read = [each["bytes"] / 1e6 for each in rows]
    print(f"{title}: {right} of {len(rows)} as expected; MB read: {_middle_and_most(read)}")
    for name, own, its in (("time", "s", "pip_s"), ("processor time", "cpu", "pip_cpu")):
        ratios = [each[own] / each[its] for each in rows]
        print(f"{name} against pip's: {_middle_and_most(ratios)}; at most twice in {sum(each <= 2 for each in ratios)}")


def _middle_and_most(numbers: list[float]) -> str:
    return f"median {statistics.median(numbers):.1f}, most {max(numbers):.1f}"


def _find(package: str, options: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        began, before = time.perf_counter(), _processor()
        done = subprocess.run(
            [str(BIN / "cuwheel"), "find", package, *options, "--json", "-q"],
            env={**os.environ, "XDG_CACHE_HOME": cache},
            capture_output=True,
            check=False,
        )
        took, cpu = time.perf_counter() - began, round(_processor() - before, 2)
    if not done.stdout:
        return {
            "answer": f"error {done.returncode}",
            "bytes": 0,
            "s": round(took, 2),
            "cpu": cpu,
            "why": done.stderr.decode()[-200:],
        }
    found = json.loads(done.stdout)
    chosen = next((each for each in found["candidates"] if each["chosen"]), None)
    answer = "none" if chosen is None else "no code" if chosen["outcome"] == "unknown" else chosen["version"]
    return {
        "answer": answer,
        "outcome": chosen["outcome"] if chosen else "",
        "version": chosen["version"] if chosen else "",
        "bytes": found["downloaded"],
        "s": round(took, 2),
        "cpu": cpu,
        "judged": f"{found['judged']} of {found['releases']}",
        "stopped": found["stopped"],
    }


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _pip(package: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    with tempfile.TemporaryDirectory() as cache:
        began, before = time.perf_counter(), _processor()
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--dry-run",
                "--no-deps",
                "--only-binary=:all:",
                "--quiet",
                "--ignore-installed",
                package,
            ],
            env={**os.environ, "PIP_CACHE_DIR": cache},
            capture_output=True,
            check=False,
        )
        return round(time.perf_counter() - began, 2), round(_processor() - before, 2)


if __name__ == "__main__":
    sys.exit(main())
