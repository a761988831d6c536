"""The zip reader and what stands on it: python tests/fuzz/fuzz_wheel.py -max_total_time=60"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["cuwheel.inspection"]):
    from cuwheel.inspection.survey import survey
    from tests.fixtures.damage import wheel
    from tests.fuzz import harness


def seeds() -> list[bytes]:
    small = harness.fixtures("fatbin")[0]
    return [wheel.wheel({"pkg/a.so": small}), wheel.wheel({"pkg/a.so": small, "pkg/b.so": small}, compression=0)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "pkg-1.0-py3-none-any.whl"

        def read(data: bytes) -> None:
            path.write_bytes(data)
            survey(path)

        harness.fuzz("wheel", seeds(), read)
