"""Reading PyTorch 2.11: against cuobjdump (the library), against unzip (the wheel), and in how much memory.

python benchmarks/bench_inspect.py     downloads the wheel (530 MB) where the test cache has none
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from harness import BIN, ROOT, Measure, alternate, command, finish, processor_seconds, shown

sys.path.insert(0, str(ROOT))

from tests.fixtures import cache, toolkits
from tests.oracle import packages

import cuwheel_core
from cuwheel.device_code.survey import survey

LIBRARY = "torch/lib/libtorch_cuda.so"
MEGABYTE = 1e6
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


def library(wheel: Path) -> Path:
    """libtorch_cuda.so on disk."""
    folder = cache.made("bench", lambda target: _extract(wheel, target))
    return folder / Path(LIBRARY).name


def _extract(wheel: Path, target: Path) -> None:
    out = target / Path(LIBRARY).name
    with zipfile.ZipFile(wheel) as archive, archive.open(LIBRARY) as member, out.open("wb") as file:
        shutil.copyfileobj(member, file, 1 << 20)


def measure_library(path: Path) -> list[Measure]:
    listing = (toolkits.cuobjdump(), "-all", "-lelf", "-lptx", path)
    works = {
        "cuobjdump": command(*listing),
        "api": lambda: survey(path),
        "core": lambda: cuwheel_core.read(path),
        "command": command(BIN / "cuwheel", "inspect", "--json", path),
    }
    taken = alternate(works, rounds=3, repeats={"api": 9, "core": 9, "command": 5})
    peer = taken["cuobjdump"]
    best = {
        "api": ("API call on libtorch_cuda.so", 553.0),
        "core": ("`cuwheel_core.read` of it, containers too", 424.0),
        "command": ("`cuwheel inspect --json` on it", 50.2),
    }
    return [
        Measure(
            what=f"{what}, against `cuobjdump -all -lelf -lptx`",
            ours=shown(taken[name]),
            theirs=shown(peer),
            value=peer / taken[name],
            best=figure,
        )
        for name, (what, figure) in best.items()
    ]


def measure_wheel(wheel: Path) -> Measure:
    members = [each.path for each in survey(wheel).libraries]
    works = {
        "command": command(BIN / "cuwheel", "inspect", "--json", wheel),
        "unzip": command("unzip", "-p", wheel, *members),
    }
    taken = alternate(works, rounds=5, timed=processor_seconds)
    return Measure(
        what="`cuwheel inspect --json` on the wheel, against `unzip -p` of its libraries, processor time",
        ours=shown(taken["command"]),
        theirs=shown(taken["unzip"]),
        value=taken["unzip"] / taken["command"],
        promised=3.0,
    )


def measure_memory(wheel: Path) -> Measure:
    """The peak of anonymous memory; pages of mapped files are the system's to drop."""
    words = [str(BIN / "cuwheel"), "inspect", "--json", str(wheel)]
    peak = 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        status = Path(f"/proc/{child.pid}/status")
        while child.poll() is None:
            found = _ANONYMOUS.search(status.read_text())
            peak = max(peak, int(found[1]) * 1024 if found else 0)
            time.sleep(0.002)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, words)
    return Measure(
        what="peak anonymous memory for the wheel",
        ours=f"{peak / MEGABYTE:.0f} MB",
        theirs="",
        value=peak / MEGABYTE,
        best=75,
        unit="MB",
        at_most=True,
    )


def main() -> int:
    torch = next(each for each in packages.published() if each.name == "torch")
    wheel = packages.wheel(torch)
    return finish([*measure_library(library(wheel)), measure_wheel(wheel), measure_memory(wheel)])


if __name__ == "__main__":
    sys.exit(main())
