"""The cubin reader: architecture, toolkit, kernels: python tests/fuzz/fuzz_cubin.py -max_total_time=60"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["cuwheel.inspection"]):
    from cuwheel.inspection import cubin
    from tests.fuzz import harness


def read(data: bytes) -> None:
    found = cubin.open_buffer(harness.CountingBuffer("fuzzed", data))
    found.kernels()
    _ = (found.arch, found.linked, found.abi)


if __name__ == "__main__":
    harness.fuzz("cubin", harness.fixtures("cubin"), read)
