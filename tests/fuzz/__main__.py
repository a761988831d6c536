"""Fuzz every reader until it has seen its number of inputs, unattended: `python -m tests.fuzz --resume`.

One process for each reader at a time, not for each input; what is found is kept, and the run goes on. The corpus and
the counts lie in the test cache (`fuzz/`). Interrupted at any moment, `--resume` goes on from the last few seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.readers import READERS, Reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[2]
_ENDS = 20  # of a process by a limit that Python cannot turn into an exception, before its reader is given up


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    groups = sorted({each.group for each in READERS.values()})
    parser.add_argument("--reader", action="append", default=[], help=f"one or a group, {', '.join(groups)} (all)")
    parser.add_argument("--inputs", type=int, help="for each reader (a million; 100,000 for documents and wheels)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each reader, at most")
    parser.add_argument("--resume", action="store_true", help="go on counting where the last run stopped")
    parser.add_argument("--jobs", type=int, default=1, help="readers at once (1)")
    parser.add_argument("--json", action="store_true", help="inputs and findings of this run, instead of the table")
    parser.add_argument("--report", action="store_true", help="only the table of what was reached")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="what does the reader do with this input?")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = [each for each in READERS.values() if not args.reader or {each.name, each.group} & set(args.reader)]
    if unknown := set(args.reader) - {*groups, *READERS}:
        parser.error(f"there is no reader {', '.join(sorted(unknown))}: {', '.join((*groups, *READERS))}")
    if args.child:
        return _child(chosen[0], int(args.child[0]), float(args.child[1]))
    if args.repeat:
        return _repeat(chosen[0], args.repeat)
    if not args.report:
        if importlib.util.find_spec("atheris") is None:
            sys.stderr.write("skipped: atheris is not installed for this Python\n")
            return 0
        with ThreadPoolExecutor(args.jobs) as pool:
            list(
                pool.map(
                    lambda each: _fuzz(each, args.inputs or each.goal, args.minutes * 60, resume=args.resume), chosen
                )
            )
    return _told(chosen) if args.json else _report(chosen)


def _told(chosen: list[Reader]) -> int:
    states = [json.loads(_state(each).read_text()) for each in chosen]
    found = [f"{place}: {kept}" for each in states for place, kept in each["findings"].items()]
    found += [ended[-3000:] for each in states for ended in each["ended"]]
    json.dump({"inputs": sum(each["inputs"] for each in states), "found": found}, sys.stdout)
    return 1 if found else 0


def _state(reader: Reader) -> Path:
    from tests.fuzz import harness

    path = harness.corpus_of(reader.name).with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _fuzz(reader: Reader, goal: int, seconds: float, *, resume: bool) -> None:
    """Processes until the goal is reached: more than one where something ends one."""
    path = _state(reader)
    told: dict[str, Any] = {"inputs": 0, "seconds": 0.0, "commits": [], "findings": {}, "ended": []}
    with contextlib.suppress(OSError, ValueError):
        before = json.loads(path.read_text())
        told = before if resume else told | {"findings": before["findings"]}
    told["findings"] = {place: kept for place, kept in told["findings"].items() if _still(reader, kept)}
    if (commit := _commit()) not in told["commits"]:
        told["commits"].append(commit)
    path.write_text(json.dumps(told, indent=1))
    end = time.monotonic() + seconds
    for _ in range(_ENDS):
        told = json.loads(path.read_text())
        left = end - time.monotonic()
        if told["inputs"] >= goal or left <= 0:
            break
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", "--reader", reader.name, "--child", str(goal), str(left)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        said = [line for line in done.stderr.splitlines() if line.startswith(f"{reader.name}: ")]
        sys.stderr.writelines(f"{line}\n" for line in said)
        if done.returncode != 0:
            told = json.loads(path.read_text())
            told["ended"].append(done.stderr[-3000:])
            path.write_text(json.dumps(told, indent=1))
    sys.stderr.write(f"{_line(reader)}\n")


def _still(reader: Reader, kept: str) -> bool:
    """Whether what was found by an earlier run is found by this code."""
    if not Path(kept).is_file():
        return False
    command = [sys.executable, "-m", "tests.fuzz", "--reader", reader.name, "--repeat", kept]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0


def _commit() -> str:
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or os.environ.get("CUWHEEL_COMMIT", "unknown")


def _child(reader: Reader, goal: int, seconds: float) -> int:
    import atheris

    with atheris.instrument_imports(include=[f"cuwheel.{each}" for each in reader.covers]), _harness(reader) as made:
        from tests.fuzz import harness

        harness.fuzz(harness.Run(reader.name, made, _state(reader), goal, seconds))
    return 0


@contextlib.contextmanager
def _harness(reader: Reader) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{reader.name}-") as place:
        yield importlib.import_module(reader.module).HARNESSES[reader.name](Path(place))


def _repeat(reader: Reader, path: Path) -> int:
    from tests.fuzz import harness

    with _harness(reader) as made:
        found = harness.problem_with(made, path.read_bytes())
    sys.stdout.write(found[1] if found else "read or refused, as it should be\n")
    return 1 if found else 0


def _modules(reader: Reader) -> Iterator[ModuleType]:
    for name in reader.covers:
        module = importlib.import_module(name)
        yield module
        for each in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
            with contextlib.suppress(ImportError):
                yield importlib.import_module(each.name)


def _line(reader: Reader) -> str:
    told = json.loads(_state(reader).read_text())
    speed = told["inputs"] / told["seconds"] if told["seconds"] else 0
    found = len(told["findings"]) + len(told["ended"])
    return (
        f"{reader.name:16} {told['inputs']:>10,} of {reader.goal:>9,} inputs {told['seconds']:>8,.0f} s "
        f"{speed:>7,.0f}/s {found:>3} found  {' '.join(told['commits'])}"
    )


def _report(chosen: list[Reader]) -> int:
    """The counts, and how much of each module the corpus reaches: measured now, by the code of now."""
    from tests.fuzz import harness

    found = 0
    for reader in chosen:
        path = _state(reader)
        if not path.is_file() or not harness.corpus_of(reader.name).is_dir():
            sys.stdout.write(f"{reader.name:16} not run yet\n")
            continue
        with _harness(reader) as made:
            reached = harness.coverage(made, reader.name, _modules(reader))
        lines = [sum(each) for each in zip(*reached.values(), strict=True)]
        told = json.loads(path.read_text())
        found += len(told["findings"]) + len(told["ended"])
        sys.stdout.write(f"{_line(reader)}  {lines[0] / lines[1]:.0%} of {lines[1]} lines\n")
        shown = (f"{name.removeprefix('cuwheel.')} {at / of:.0%}" for name, (at, of) in sorted(reached.items()))
        sys.stdout.write(f"    {', '.join(shown)}\n")
        for place, kept in told["findings"].items():
            sys.stdout.write(f"    {place}: python -m tests.fuzz --reader {reader.name} --repeat {kept}\n")
        sys.stdout.writelines(f"    a process was ended: {each[-300:]}\n" for each in told["ended"])
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
