"""Some minutes of each campaign; tests/fuzz has those of the fuzzers. More: ./run campaign --minutes 60"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cuwheel.support import process
from tests.campaign import hostile, jobs, mutants, pairs

MINUTES = 2
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the interposer with")
@pytest.mark.parametrize("kind", ["leaves", "kill", "disk", "race", "hostile"])
def test_nothing_is_found(kind: str) -> None:
    command = [sys.executable, "-m", "tests.campaign", kind, "--minutes", str(MINUTES)]
    done = process.run(command, timeout=600 * MINUTES, check=False, cwd=ROOT)
    assert done.seconds < 60 * MINUTES * 1.1 + 5  # the budget is for all of it; some seconds to start and to clear away
    assert done.status == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert " 0 problems" in done.stdout


@pytest.mark.parametrize("mutant", mutants.read(), ids=lambda each: each.name)
def test_a_mutant_has_its_place_and_its_judge(mutant: mutants.Mutant, tmp_path: Path) -> None:
    """Whether it is noticed is for `./run campaign mutants`; here, that the list fits the code."""
    place = tmp_path / mutant.file
    place.parent.mkdir(parents=True)
    shutil.copy(ROOT / mutant.file, place)
    mutants.apply(mutant, tmp_path)
    compile(place.read_text(), mutant.file, "exec")
    kind, *names = mutant.campaign or ("",)
    known = {*pairs.NAMES, *(each.name for each in (hostile.ATTACKS if kind == "hostile" else jobs.JOBS))}
    assert set(names) <= known
    assert bool(kind) != bool(mutant.tests)
