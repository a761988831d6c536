"""Looks for what no test thought of, and counts what it tried: `./run campaign [KIND…] --minutes N`.

`./run campaign mutants` asks whether it would notice: it breaks the code on purpose (mutants.toml).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tests.campaign import hostile, jobs, mutants, race

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KINDS = ("fuzz", "kill", "disk", "race", "hostile")
SWEEPS = {"kill": ("kill", "torn"), "disk": ("once", "full")}
_LEAST_S = 15.0
_GRACE = 1.05  # of its time, for the strike under way
_FUZZER_STARTS_S = 3.0
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
        through = (
            "" if self.complete else " (time ran out before all were through)" if self.tried else " (no time left)"
        )
        found = f", {len(self.problems)} problems" if self.problems else ""
        return f"{self.kind:5} {self.name:24} {self.tried:>9,} tried{found}{through}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run campaign", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="fuzz, kill, disk, race, hostile (all); mutants")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of it (5)")
    parser.add_argument("--job", action="append", default=[], help="only these jobs, harnesses, attacks or mutants")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the order, where there is not time for all"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.kinds == ["mutants"]:
        return mutants.main(args.job)
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"there is no campaign {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    chosen = [kind for kind in KINDS if not args.kinds or kind in args.kinds]
    sys.stderr.write(f"campaign: {args.minutes:g} minutes, --seed {args.seed}\n")
    parts = []
    begin, seconds = time.monotonic(), args.minutes * 60
    for number, kind in enumerate(chosen, 1):
        end = begin + seconds * number / len(chosen)
        for part in _campaign(kind, args.job, random.Random(args.seed), end):  # noqa: S311
            sys.stderr.write(part.line() + "\n")
            parts.append(part)
    problems = [problem for part in parts for problem in part.problems]
    if args.json:
        json.dump([vars(part) for part in parts], sys.stdout, indent=1)
    else:
        sys.stdout.writelines(f"{problem}\n" for problem in problems)
        sys.stdout.write(f"{sum(part.tried for part in parts):,} tried, {len(problems)} problems\n")
    return 1 if problems else 0


def _campaign(kind: str, names: list[str], chance: random.Random, end: float) -> Iterator[Part]:
    """Each part gets its share of the time; what one leaves is for the others. At the end of it, nothing is begun."""
    works = {"fuzz": _fuzzers, "race": _races, "hostile": _attacks}
    work = works[kind](names) if kind in works else _sweeps(kind, names)
    chance.shuffle(work)
    for number, (name, act) in enumerate(work):
        share = (end - time.monotonic()) / (len(work) - number)
        # With less a sweep does not come to its first strike: better some parts than a start of all.
        share = min(max(share, _LEAST_S), end - time.monotonic())
        yield act(share) if share > 1 else Part(kind=kind, name=name, complete=False)


Work: TypeAlias = "list[tuple[str, Callable[[float], Part]]]"


def _sweeps(kind: str, names: list[str]) -> Work:
    chosen = [job.name for job in jobs.JOBS if not names or job.name in names]
    return [(each, partial(sweep, kind, each, ",".join(SWEEPS[kind]))) for each in chosen]


def _races(names: list[str]) -> Work:
    chosen = [job for job in jobs.JOBS if job.together and (not names or job.name in names)]
    return [(each.name, partial(_race, each)) for each in chosen]


def _race(job: jobs.Job, seconds: float) -> Part:
    rounds, problems = race.run(job, seconds)
    return Part(kind="race", name=job.name, tried=rounds * race.AT_ONCE, complete=rounds > 0, problems=problems)


def _attacks(names: list[str]) -> Work:
    chosen = [each for each in hostile.ATTACKS if not names or each.name in names]
    return [(each.name, partial(_attack, each)) for each in chosen]


def _attack(attack: hostile.Attack, seconds: float) -> Part:
    problems = hostile.run(attack, seconds)
    tried = problems is not None
    return Part(kind="hostile", name=attack.name, tried=int(tried), complete=tried, problems=problems or [])


def _fuzzers(names: list[str]) -> Work:
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write("fuzz: skipped, atheris is not installed for this Python\n")
        return []
    found = [path.stem.removeprefix("fuzz_") for path in sorted((HERE.parent / "fuzz").glob("fuzz_*.py"))]
    return [(each, partial(_fuzz, each)) for each in found if not names or each in names]


def sweep(kind: str, name: str, modes: str, seconds: float, strikes: int | None = None) -> Part:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "faults.so")
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True, timeout=60
        )
        command = [sys.executable, "-m", "tests.campaign.sweep", modes, name, f"{seconds:.1f}"]
        command += [str(strikes)] if strikes else []
        environ = {**os.environ, "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}
        status, output, messages = _ended(command, seconds, environ)
    label = f"{name} {modes}"
    if status not in (0, None):
        return Part(kind=kind, name=label, problems=[messages[-2000:]])
    lines = [line for line in output.splitlines() if line.endswith("}")]  # the last may be cut short
    if not lines:
        return Part(kind=kind, name=label, complete=False)
    found = json.loads(lines[-1])
    return Part(kind=kind, name=label, tried=found["struck"], complete=found["through"], problems=found["problems"])


def _ended(command: list[str], seconds: float, environ: Mapping[str, str] | None = None) -> tuple[int | None, str, str]:
    """Status and both streams; ended with all that it started some time after its own end is due, without a status."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            output, messages = child.communicate(timeout=seconds * _GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, messages = child.communicate()
            return None, output, messages
    return child.returncode, output, messages


def _fuzz(name: str, seconds: float) -> Part:
    least = max(1, int(seconds - _FUZZER_STARTS_S))
    command = [sys.executable, str(HERE.parent / "fuzz" / f"fuzz_{name}.py"), f"-max_total_time={least}"]
    status, output, messages = _ended(command, seconds + _FUZZER_STARTS_S)
    counts = [int(match[1] or match[2]) for match in _RUNS.finditer(messages)]
    problems = [] if status in (0, None) else [f"fuzz {name}: {(output + messages)[-3000:]}"]
    return Part(kind="fuzz", name=name, tried=max(counts, default=0), problems=problems)


if __name__ == "__main__":
    sys.exit(main())
