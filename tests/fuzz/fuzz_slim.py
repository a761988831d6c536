"""Libraries through slim, changed field by field: python tests/fuzz/fuzz_slim.py -max_total_time=60"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["cuwheel.binary", "cuwheel.slimming", "cuwheel.inspection"]):
    from cuwheel.binary.library import slim_library
    from tests.fuzz import harness
    from tests.unit.binary import engine

from tests.fuzz import binaries


def slim(folder: Path, data: bytes) -> None:
    """Refused, or sound: what was kept can be read, and slimming it again takes nothing more out."""
    source, target = folder / "source.so", folder / "target.so"
    target.unlink(missing_ok=True)
    source.write_bytes(data)
    try:
        result = slim_library(source, target, engine.plan(source, "9.0", recompress=bool(data[-1] & 1)))
        if target.exists() != result.written:
            raise AssertionError("what was said to be written and what was written differ")
        if result.written:
            again = engine.plan(target, "9.0")
            if not all(each.keep for each in again.entries):
                raise AssertionError("slimmed twice, it loses more")
    finally:
        if source.read_bytes() != data:
            raise AssertionError("the original was changed")
        if strangers := {each.name for each in folder.iterdir()} - {"source.so", "target.so"}:
            raise AssertionError(f"left behind: {strangers}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        harness.fuzz(
            "slim",
            [data for data in harness.fixtures("elf") if len(data) <= binaries.LARGEST],
            lambda data: slim(place, data or b"\0"),
            binaries.mutate,
        )
