"""Killed at any moment: the original or the finished file, never anything between, and the next run recovers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cuwheel import process

ROOT = Path(__file__).parents[2]
ROUNDS = 100


@pytest.mark.parametrize("kind", ["environment", "wheel"])
def test_killed_a_hundred_times(kind: str) -> None:
    command = [sys.executable, "-m", "tests.integration.slim_killer", kind, str(ROUNDS), "5"]
    found = json.loads(process.run(command, timeout=400, cwd=ROOT).stdout)
    assert found["problems"] == []
    assert found["rounds"] == ROUNDS
    # The others ended before the signal: moments are drawn up to a little after the end.
    assert sum(found["killed"].values()) > ROUNDS / 5, found
