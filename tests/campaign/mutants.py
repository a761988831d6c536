"""Whether the tests and campaigns would notice: each mutant of mutants.toml in a copy of the code, and what finds it.

Not for finding what is untested in general; these are the few lines whose loss nobody would see in daily use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
HOUSES = ("src", "core/src", "lab/src")
ROOT = HERE.parents[1]
_LIMIT_S = 600
_MINUTES = "1"


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`file`: below the repository. `campaign`: a kind and jobs; else `tests`: words for pytest. `says`: what one of
    them prints of it.
    """

    name: str
    file: str
    find: str
    replace: str
    says: str
    campaign: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def command(self) -> list[str]:
        if not self.campaign:
            return [sys.executable, "-m", "pytest", "-q", "-x", "--all", "-p", "no:cacheprovider", *self.tests]
        kind, *names = self.campaign
        chosen = [word for name in names for word in ("--job", name)]
        return [sys.executable, "-m", "tests.campaign", kind, *chosen, "--minutes", _MINUTES]


class _Mutants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...]


def read() -> tuple[Mutant, ...]:
    return msgspec.toml.decode((HERE / "mutants.toml").read_bytes(), type=_Mutants).mutant


def main(names: Sequence[str]) -> int:
    chosen = [each for each in read() if not names or each.name in names]
    unnoticed = 0
    for each in chosen:
        begin = time.monotonic()
        problem = _problem(each)
        unnoticed += bool(problem)
        sys.stderr.write(f"{each.name:44} {problem or 'noticed'} ({time.monotonic() - begin:.0f} s)\n")
    sys.stdout.write(f"{len(chosen)} mutants, {unnoticed} not noticed\n")
    return 1 if unnoticed or not chosen else 0


def _problem(mutant: Mutant) -> str:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_houses(copy)
        apply(mutant, copy)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / house) for house in HOUSES)}
        done = subprocess.run(
            mutant.command(), cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return f"NOT NOTICED by: {' '.join(mutant.command()[2:])}"
    return "" if re.search(mutant.says, output) else f"NOTICED FOR ANOTHER REASON: {output[-1500:]}"


def copy_houses(folder: Path) -> None:
    """Copies the sources of the three packages, in the places where they lie here."""
    for house in HOUSES:
        shutil.copytree(ROOT / house, folder / house, ignore=shutil.ignore_patterns("__pycache__"))


def apply(mutant: Mutant, folder: Path) -> None:
    path = folder / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.find) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.file} has its text {text.count(mutant.find)} times, not once")
    path.write_text(text.replace(mutant.find, mutant.replace), encoding="utf-8")
