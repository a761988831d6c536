"""Looks for what no test thought of, and counts what it tried: `./run campaign [fuzz|kill|disk|race] --minutes N`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.campaign import jobs, race

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KINDS = ("fuzz", "kill", "disk", "race")
SWEEPS = {"kill": ("kill", "torn"), "disk": ("once", "full")}
_RUNS = re.compile(r"Done (\d+) (?:runs|in)|^#(\d+)\t", re.MULTILINE)


@dataclass(kw_only=True)
class Part:
    """One thing that is tried: what it was, how often, and what was found."""

    kind: str
    name: str
    tried: int = 0
    complete: bool = True
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        through = "" if self.complete else " (time ran out before all were through)"
        found = f", {len(self.problems)} problems" if self.problems else ""
        return f"{self.kind:5} {self.name:24} {self.tried:>9,} tried{found}{through}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run campaign", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="fuzz, kill, disk, race (all)")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of it (5)")
    parser.add_argument("--job", action="append", default=[], help="only these jobs or harnesses")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"there is no campaign {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    chosen = [kind for kind in KINDS if not args.kinds or kind in args.kinds]
    parts = []
    for kind in chosen:
        for part in _campaign(kind, args.job, args.minutes * 60 / len(chosen)):
            sys.stderr.write(part.line() + "\n")
            parts.append(part)
    problems = [problem for part in parts for problem in part.problems]
    if args.json:
        json.dump([vars(part) for part in parts], sys.stdout, indent=1)
    else:
        sys.stdout.writelines(f"{problem}\n" for problem in problems)
        sys.stdout.write(f"{sum(part.tried for part in parts):,} tried, {len(problems)} problems\n")
    return 1 if problems else 0


def _campaign(kind: str, names: list[str], seconds: float) -> Iterator[Part]:
    """Each part gets its share of the time; what one leaves is for the others."""
    work = list(_fuzzing(names) if kind == "fuzz" else _jobs(kind, names))
    end = time.monotonic() + seconds
    for number, (name, mode) in enumerate(work):
        share = max(1.0, (end - time.monotonic()) / (len(work) - number))
        if kind == "fuzz":
            yield _fuzz(name, share)
        elif kind == "race":
            (job,) = jobs.by_name([name])
            rounds, problems = race.run(job, share)
            yield Part(kind=kind, name=name, tried=rounds * race.AT_ONCE, problems=problems)
        else:
            yield sweep(kind, name, mode, share)


def _jobs(kind: str, names: list[str]) -> Iterator[tuple[str, str]]:
    for job in jobs.JOBS:
        if names and job.name not in names:
            continue
        if kind == "race":
            if job.together:
                yield job.name, ""
        else:
            for mode in SWEEPS[kind]:
                yield job.name, mode


def _fuzzing(names: list[str]) -> Iterator[tuple[str, str]]:
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write("fuzz: skipped, atheris is not installed for this Python\n")
        return
    for path in sorted((HERE.parent / "fuzz").glob("fuzz_*.py")):
        if not names or path.stem.removeprefix("fuzz_") in names:
            yield path.stem.removeprefix("fuzz_"), ""


def sweep(kind: str, name: str, mode: str, seconds: float, strikes: int | None = None) -> Part:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "faults.so")
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True, timeout=60
        )
        command = [sys.executable, "-m", "tests.campaign.sweep", mode, name, f"{seconds:.0f}"]
        command += [str(strikes)] if strikes else []
        environ = {**os.environ, "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Part(kind=kind, name=f"{name} {mode}", problems=[done.stderr[-2000:]])
    found = json.loads(done.stdout.splitlines()[-1])
    label = name if mode == kind else f"{name} {mode}"
    return Part(kind=kind, name=label, tried=found["struck"], complete=found["through"], problems=found["problems"])


def _fuzz(name: str, seconds: float) -> Part:
    command = [sys.executable, str(HERE.parent / "fuzz" / f"fuzz_{name}.py"), f"-max_total_time={seconds:.0f}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = [int(match[1] or match[2]) for match in _RUNS.finditer(done.stderr)]
    problems = [] if done.returncode == 0 else [f"fuzz {name}: {(done.stdout + done.stderr)[-3000:]}"]
    return Part(kind="fuzz", name=name, tried=max(counts, default=0), problems=problems)


if __name__ == "__main__":
    sys.exit(main())
