"""The walk over containers and the payloads of their entries: python tests/fuzz/fuzz_fatbin.py -max_total_time=60"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["cuwheel.inspection"]):
    from cuwheel.inspection import library, payload
    from tests.fuzz import harness


def read(data: bytes) -> None:
    buffer = harness.CountingBuffer("fuzzed", data)
    for entry in library.read(buffer, detail="entries").entries:
        stored = entry.compressed_bytes or entry.bytes
        payload.read(buffer, entry.offset + entry.header_size, stored, entry.real_bytes, entry.compression)


if __name__ == "__main__":
    harness.fuzz("fatbin", [*harness.fixtures("fatbin"), *harness.containers()], read)
