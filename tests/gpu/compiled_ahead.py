"""What `graft --compile` and `slim --compile` made of PTX, on a GPU of 9.0: the driver compiles nothing.

    python3 -m tests.gpu.compiled_ahead FOLDER OUT       FOLDER as `make` filled it, where there is a network

Each library runs as it is, by the driver's compiler, and compiled ahead of time with that compiler switched off: the
results must be the same.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tests.gpu.grafted import ran

# By the ptxas of the driver's own release, 13.0; PTX of 13.4 is too new for that driver, and for that ptxas.
LIBRARIES = ("ptx", "ptx-options", "ptx-debug", "ptx-specific", "ptx-raw", "ptx-lz4", "ptx-rdc")
TOO_NEW = "ptx-13.4"
_UNSUPPORTED_PTX = 222
_OFF = "CUDA_DISABLE_PTX_JIT"


def make(folder: Path) -> None:
    import cuwheel
    from tests.fixtures import grafts

    for name in (*LIBRARIES, TOO_NEW):
        shutil.copy(grafts.library(name), folder / f"{name}.so")
        cuda = None if name == TOO_NEW else "13.0"
        cuwheel.graft(folder / f"{name}.so", compile=["sm_90"], cuda=cuda, output=folder / f"{name}.compiled.so")
        cuwheel.slim(folder / f"{name}.so", machines=["h100"], compile=True, output=folder / f"{name}.slim.so")


def rows(folder: Path) -> list[dict[str, object]]:
    """One a library: whether it gave what it should."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    found: list[dict[str, object]] = []
    for name in (*LIBRARIES, TOO_NEW):
        os.environ.pop(_OFF, None)
        by_driver = ran(folder / f"{name}.so")
        wanted = ran(folder / "ptx.so") if name == TOO_NEW else by_driver
        os.environ[_OFF] = "1"
        ahead, cut = ran(folder / f"{name}.compiled.so"), ran(folder / f"{name}.slim.so")
        right = ahead == cut == wanted and all(each[0] == 0 for each in ahead.values())
        if name == TOO_NEW:
            right = right and by_driver.get("first", [None])[0] == _UNSUPPORTED_PTX
        found.append({"what": name, "good": right, "seen": [by_driver, ahead, cut]})
    return found


def main(folder: str, out: str) -> int:
    found = rows(Path(folder))
    Path(out).mkdir(parents=True, exist_ok=True)
    Path(out, "grafted.json").write_text(json.dumps(found, indent=1))
    return 0 if all(each["good"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
