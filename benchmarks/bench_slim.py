"""Slimming PyTorch 2.11's library for one GPU against copying it, and in how much memory.

python benchmarks/bench_slim.py     downloads the wheel (530 MB) where the test cache has none
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_inspect import library
from harness import ROOT, Measure, alternate, command, finish, shown

sys.path.insert(0, str(ROOT))

from tests.oracle import packages

from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel.changes.slim.decide import decide_library
from cuwheel.changes.slim.request import SlimTask
from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import from_gpu

MEGABYTE = 1e6
ROUNDS = 7
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


def slim(source: Path, target: Path) -> None:
    """All of it: read, decide, write, read again."""
    found = survey(source, detail="entries").libraries[0]
    slim_library(source, target, decide_library(found, SlimTask(machines=(from_gpu("H200"),))))


def measure(path: Path, folder: Path) -> list[Measure]:
    """Into a new file each time, as both do in use: writing over an old one costs more."""
    copied, slimmed = folder / "copied", folder / "slimmed"

    def fresh() -> None:
        slimmed.unlink(missing_ok=True)
        slim(path, slimmed)

    def copy() -> None:
        copied.unlink(missing_ok=True)
        command("cp", path, copied)()

    taken = alternate({"slim": fresh, "cp": copy}, ROUNDS)
    size = slimmed.stat().st_size
    peak = anonymous_peak(path, folder / "watched")
    return [
        Measure(
            what=f"slim {path.name} for an H200 ({path.stat().st_size / 1e6:.0f} → {size / 1e6:.0f} MB) against cp",
            ours=shown(taken["slim"]),
            theirs=shown(taken["cp"]),
            value=taken["slim"] / taken["cp"],
            best=1.4,
            at_most=True,
        ),
        Measure(
            what="the same: peak of anonymous memory",
            ours=f"{peak:.0f} MB",
            theirs="",
            value=peak,
            best=18,
            unit="MB",
            at_most=True,
        ),
    ]


def anonymous_peak(path: Path, target: Path) -> float:
    code = f"import bench_slim, pathlib; bench_slim.slim(pathlib.Path({str(path)!r}), pathlib.Path({str(target)!r}))"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)
    peak = 0
    status = Path(f"/proc/{child.pid}/status")
    while child.poll() is None:
        match = _ANONYMOUS.search(status.read_text()) if status.exists() else None
        peak = max(peak, int(match[1])) if match else peak
        time.sleep(0.002)
    if child.returncode:
        raise SystemExit(child.returncode)
    return peak * 1024 / MEGABYTE


def main() -> int:
    torch = next(each for each in packages.published() if each.name == "torch")
    path = library(packages.wheel(torch))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        return finish(measure(path, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
