"""`find` on the public index: ten popular packages on five machines, against answers that were written down before.

Each question is asked by a process of its own with an empty cache: with the catalogue that ships, and without any.
Beside it runs `pip install --dry-run --no-deps` of the same name, which asks the same index for the same page.

    .venv/bin/python benchmarks/find_index.py              the tables of docs/why/find-on-the-index.md; needs the index
    .venv/bin/python benchmarks/find_index.py --only torch
"""

from __future__ import annotations

import argparse
import json
import os
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
    parser.add_argument("--without", action="store_true", help="ask without the catalogue, too")
    words = parser.parse_args()
    table = codec.parse_toml((HERE / "find_index_expected.toml").read_bytes())
    rows = []
    for package, wanted in table["expected"].items():
        if words.only and package not in words.only:
            continue
        pip_s = _pip(package)
        for (machine, options), expected in zip(table["machines"].items(), wanted, strict=True):
            for catalogue in ([], ["--catalogue", "none"])[: 2 if words.without else 1]:
                row = {"package": package, "machine": machine, "expected": expected, "pip_s": pip_s}
                row |= {"catalogue": not catalogue, **_find(package, [*options, *catalogue])}
                rows.append(row)
                print(json.dumps(row), flush=True)
    for with_it in (True, False):
        some = [each for each in rows if each["catalogue"] is with_it]
        if some:
            _summary("with the catalogue" if with_it else "without it", some)
    return 0


def _summary(title: str, rows: list[dict[str, Any]]) -> None:
    right = sum(each["answer"] == each["expected"] for each in rows)
    read = [each["bytes"] / 1e6 for each in rows]
    times = [each["s"] / each["pip_s"] for each in rows]
    print(
        f"{title}: {right} of {len(rows)} as expected; MB read: median {statistics.median(read):.1f}, "
        f"most {max(read):.1f}; time against pip: median {statistics.median(times):.1f}, most {max(times):.1f}"
    )


def _find(package: str, options: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        done = subprocess.run(
            [str(BIN / "cuwheel"), "find", package, *options, "--json", "-q"],
            env={**os.environ, "XDG_CACHE_HOME": cache},
            capture_output=True,
            check=False,
        )
        took = time.perf_counter() - began
    if not done.stdout:
        return {
            "answer": f"error {done.returncode}",
            "bytes": 0,
            "s": round(took, 2),
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
        "judged": f"{found['judged']} of {found['releases']}",
        "stopped": found["stopped"],
    }


def _pip(package: str) -> float:
    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
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
        return round(time.perf_counter() - began, 2)


if __name__ == "__main__":
    sys.exit(main())
