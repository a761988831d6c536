"""Looks for what no test thought of, and counts what it tried: `./run campaign [KIND…] --minutes N`.

`./run campaign mutants` asks whether it would notice: it breaks the code on purpose (mutants.toml).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.campaign import hostile, jobs, leaves, mutants, pairs, race
from tests.fixtures import cache
from tests.fuzz import readers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KINDS = ("fuzz", "leaves", "kill", "disk", "race", "hostile")
SWEEPS = {"kill": ("kill", "torn"), "disk": ("once", "full", "refused")}
_LEAST_S = 15.0
_LONGEST_S = 3600.0  # for one job
_GRACE = 1.05  # of its time, for the strike under way
_FUZZER_STARTS_S = 3.0


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
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", help="fuzz, leaves, kill, disk, race, hostile (all); mutants"
    )
    parser.add_argument("--minutes", type=float, help="for all of it (5; with --tries as long as it takes)")
    parser.add_argument("--tries", type=int, help="of each kind, shared by its jobs: strikes, or races")
    parser.add_argument("--resume", action="store_true", help="leave out the jobs that the last run with --tries did")
    parser.add_argument("--job", action="append", default=[], help="only these jobs, harnesses, attacks or mutants")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the order, where there is not time for all"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if (args.tries or args.resume) and not set(args.kinds) <= {*SWEEPS, "race"}:
        parser.error(f"--tries and --resume are for {', '.join((*SWEEPS, 'race'))}")
    if args.kinds == ["mutants"]:
        return mutants.main(args.job)
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"there is no campaign {', '.join(sorted(unknown))}: {', '.join(KINDS)}")
    chosen = [kind for kind in KINDS if not args.kinds or kind in args.kinds]
    minutes = args.minutes or (float("inf") if args.tries else 5.0)
    sys.stderr.write(f"campaign: {minutes:g} minutes, --seed {args.seed}\n")
    parts = []
    begin, seconds = time.monotonic(), minutes * 60
    for number, kind in enumerate(chosen, 1):
        end = begin + seconds * number / len(chosen)
        chance = random.Random(args.seed)  # noqa: S311
        counted = _counted(kind, args.job, args.tries, end, resume=args.resume) if args.tries else None
        for part in counted or _campaign(kind, args.job, chance, end):
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
    work = _leaves(names, chance) if kind == "leaves" else works[kind](names) if kind in works else _sweeps(kind, names)
    chance.shuffle(work)
    for number, (name, act) in enumerate(work):
        share = (end - time.monotonic()) / (len(work) - number)
        # With less a sweep does not come to its first strike: better some parts than a start of all.
        share = min(max(share, _LEAST_S), end - time.monotonic())
        yield act(share) if share > 1 else Part(kind=kind, name=name, complete=False)


def _counted(kind: str, names: list[str], tries: int, end: float, *, resume: bool) -> Iterator[Part]:
    """So many of one kind, however long it takes: what a job has too few calls for is for those behind it.

    The tally is written after each job, so that a run that was ended goes on with the next.
    """
    tally = cache.folder() / "campaign" / f"{kind}.json"
    tally.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, Part] = {}
    if resume and tally.is_file():
        done = {each["name"]: Part(**each) for each in json.loads(tally.read_text())}
    chosen = [name for name, _ in _races(names)] if kind == "race" else [name for name, _ in _sweeps(kind, names)]
    for number, name in enumerate(chosen):
        if name not in done and time.monotonic() < end:
            left = tries - sum(each.tried for each in done.values())
            share = -(-left // sum(each not in done for each in chosen[number:]))
            seconds = min(_LONGEST_S, end - time.monotonic())
            if share > 0:
                struck = race_of if kind == "race" else partial(sweep, kind, modes=",".join(SWEEPS.get(kind, ())))
                part = struck(name=name, seconds=seconds, most=share)
                done[name] = replace(part, name=name, complete=part.complete or part.tried == share)
                tally.write_text(json.dumps([vars(each) for each in done.values()], indent=1))
        yield done.get(name) or Part(kind=kind, name=name, complete=False)


Work: TypeAlias = "list[tuple[str, Callable[[float], Part]]]"


def _sweeps(kind: str, names: list[str]) -> Work:
    chosen = [job.name for job in jobs.JOBS if not names or job.name in names]
    return [(each, partial(sweep, kind, each, ",".join(SWEEPS[kind]))) for each in chosen]


def _races(names: list[str]) -> Work:
    chosen = [*pairs.NAMES, *(job.name for job in jobs.JOBS if job.together)]
    return [(each, partial(race_of, each)) for each in chosen if not names or each in names]


def _leaves(names: list[str], chance: random.Random) -> Work:
    """Each in an order of its own, so that another --seed tries other leaves first."""
    chosen = [name for name in leaves.NAMES if not names or name in names]
    return [(name, partial(leaves_of, name, seed=chance.randrange(1 << 30))) for name in chosen]


def leaves_of(name: str, seconds: float, *, seed: int) -> Part:
    command = [sys.executable, "-m", "tests.campaign.leaves", name, f"{seconds:.1f}", str(seed)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        return _apart("leaves", name, command, seconds, {**os.environ, "TMPDIR": folder})


def race_of(name: str, seconds: float, most: int = 0, at_once: int = race.AT_ONCE) -> Part:
    """Tried are the races, each of `at_once` processes, or of the two of a pair."""
    # What a process that was ended had started may still write there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "tests.campaign.race", name, f"{seconds:.1f}", str(most), str(at_once)]
        part = _apart("race", name, command, seconds, {**os.environ, "TMPDIR": folder})
    return replace(part, complete=part.tried > 0)


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
    chosen = [each for each in readers.READERS.values() if not names or {each.name, each.group} & set(names)]
    return [(each.name, partial(_fuzz, each)) for each in chosen]


def sweep(kind: str, name: str, modes: str, seconds: float, most: int | None = None) -> Part:
    """`most`: strikes."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        library = Path(folder, "faults.so")
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True, timeout=60
        )
        command = [sys.executable, "-m", "tests.campaign.sweep", modes, name, f"{seconds:.1f}"]
        command += [str(most)] if most else []
        environ = {**os.environ, "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}
        return _apart(kind, f"{name} {modes}", command, seconds, environ)


def _apart(kind: str, label: str, command: list[str], seconds: float, environ: Mapping[str, str]) -> Part:
    """In a process that says after each try what it has found."""
    status, output, messages = _ended(command, seconds, environ)
    if status not in (0, None):
        return Part(kind=kind, name=label, problems=[messages[-2000:]])
    lines = [line for line in output.splitlines() if line.endswith("}")]  # the last may be cut short
    if not lines:
        return Part(kind=kind, name=label, complete=False)
    found = json.loads(lines[-1])
    return Part(kind=kind, name=label, tried=found["tried"], complete=found["through"], problems=found["problems"])


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


def _fuzz(reader: readers.Reader, seconds: float) -> Part:
    least = max(1.0, seconds - _FUZZER_STARTS_S)
    command = [sys.executable, "-m", "tests.fuzz", "--reader", reader.name, "--minutes", f"{least / 60:.3f}", "--json"]
    status, output, messages = _ended(command, seconds + _FUZZER_STARTS_S)
    told: dict[str, Any] = json.loads(output) if status is not None and output else {"inputs": 0, "found": []}
    problems = [] if status in (0, None) else told["found"] or [messages[-3000:]]
    return Part(kind="fuzz", name=reader.name, tried=told["inputs"], complete=False, problems=problems)


if __name__ == "__main__":
    sys.exit(main())
