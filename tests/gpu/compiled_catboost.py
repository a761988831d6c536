"""catboost with its PTX and what `graft --compile` made of that, no more: the driver compiles the one, or must take the
other; the predictions must be the same bits.

    python3 -m tests.gpu.compiled_catboost FOLDER OUT       FOLDER as `make` filled it, where there is a network

Needs nothing of cuwheel's where it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

_WHEEL = "catboost==1.2.10"
_FIT = """
import hashlib, json, time
import numpy
from catboost import CatBoostRegressor
random = numpy.random.default_rng(1)
x = random.random((20000, 20), dtype=numpy.float32)
y = x[:, 0] * x[:, 1] + numpy.sin(x[:, 2] * 6)
model = CatBoostRegressor(iterations=50, task_type="GPU", random_seed=1, verbose=False, allow_writing_files=False)
began = time.monotonic()
model.fit(x, y)
seconds = time.monotonic() - began
print(json.dumps([hashlib.sha256(model.predict(x).tobytes()).hexdigest(), seconds]))
"""


def make(folder: Path) -> None:
    """What a B200 would take of it is PTX alone."""
    import cuwheel
    from tests.fixtures import cache

    options = ("--python-version", "3.12", "--platform", "manylinux2014_x86_64")
    (wheel,) = cache.made("catboost-1.2.10", lambda to: cache.pip_download(to, _WHEEL, *options)).glob("*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        cuwheel.slim(wheel, machines=["b200"], output=Path(scratch))
        (cut,) = Path(scratch).glob("*.whl")
        cuwheel.graft(cut, compile=["sm_90"], output=folder)


def rows(folder: Path) -> list[dict[str, object]]:
    """By the driver's compiler, though there is machine code; then without that compiler."""
    (wheel,) = folder.glob("*.whl")
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        path = os.pathsep.join(filter(None, [scratch, os.environ.get("PYTHONPATH")]))
        for switch in ("CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT"):
            env = {**os.environ, "PYTHONPATH": path, "CUDA_CACHE_DISABLE": "1", switch: "1"}
            done = subprocess.run([sys.executable, "-c", _FIT], env=env, capture_output=True, text=True, check=False)
            seen[switch] = json.loads(done.stdout) if not done.returncode else [None, done.stderr[-300:]]
    by_driver, ahead = (each[0] for each in seen.values())
    return [{"what": wheel.name, "good": by_driver is not None and by_driver == ahead, "seen": seen}]


def main(folder: str, out: str) -> int:
    found = rows(Path(folder))
    Path(out).mkdir(parents=True, exist_ok=True)
    Path(out, "grafted.json").write_text(json.dumps(found, indent=1))
    return 0 if all(each["good"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
