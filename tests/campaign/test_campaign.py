"""Some minutes of each campaign; tests/fuzz has those of the fuzzers. More: ./run campaign --minutes 60"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cuwheel import process

MINUTES = 2
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the interposer with"),
]


@pytest.mark.parametrize("kind", ["kill", "disk", "race"])
def test_nothing_is_found(kind: str) -> None:
    command = [sys.executable, "-m", "tests.campaign", kind, "--minutes", str(MINUTES)]
    done = process.run(command, timeout=600 * MINUTES, check=False, cwd=Path(__file__).parents[2])
    assert done.status == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert " 0 problems" in done.stdout
