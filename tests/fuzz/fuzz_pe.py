"""The PE reader: python tests/fuzz/fuzz_pe.py -max_total_time=60"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["cuwheel.inspection"]):
    from cuwheel.inspection import library
    from tests.fuzz import harness


def read(data: bytes) -> None:
    library.read(harness.CountingBuffer("fuzzed", data), detail="entries", search="whole")


if __name__ == "__main__":
    harness.fuzz("pe", harness.fixtures("pe"), read)
