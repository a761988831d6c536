"""A short run of every harness. A long one: python tests/fuzz/fuzz_elf.py -max_total_time=3600"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from cuwheel import process

SECONDS = 20
HARNESSES = sorted(Path(__file__).parent.glob("fuzz_*.py"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed here"),
]


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda path: path.stem)
def test_nothing_new_is_found(harness: Path) -> None:
    command = [sys.executable, str(harness), f"-max_total_time={SECONDS}"]
    done = process.run(command, timeout=10 * SECONDS, check=False)
    assert done.status == 0, done.stdout[-4000:] + done.stderr[-4000:]
