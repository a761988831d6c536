"""A build of many files with nvcc and the host compiler, with and without `cuwheel record`."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, ROOT, Measure, finish, seconds, shown

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(ROOT))

from tests.fixtures import toolkits

ROUNDS = 3
CUDA_FILES, HOST_FILES = 8, 16
KERNEL = """\
#include <cstdio>
__global__ void kernel_{0}(float* p, int n) {{ for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] *= {0}.5f; }}
void run_{0}(float* p, int n) {{ kernel_{0}<<<1, 128>>>(p, n); }}
"""
HOST = """\
#include <algorithm>
#include <map>
#include <string>
#include <vector>
int host_{0}() {{ std::map<std::string, std::vector<int>> m; m["a"].push_back({0}); return (int)m.size(); }}
"""
MAKEFILE = """\
objects = $(patsubst %.cu,%.o,$(wildcard *.cu)) $(patsubst %.cpp,%.o,$(wildcard *.cpp))
lib.so: $(objects)
\tg++ -shared -o $@ $^
%.o: %.cu
\tnvcc -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code=sm_100 -Xcompiler -fPIC -c $< -o $@
%.o: %.cpp
\tg++ -O1 -fPIC -c $< -o $@
"""


def main() -> int:
    environ = os.environ | {"PATH": f"{toolkits.nvcc('13.0') / 'bin'}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(CUDA_FILES):
            (folder / f"k{number}.cu").write_text(KERNEL.format(number))
        for number in range(HOST_FILES):
            (folder / f"h{number}.cpp").write_text(HOST.format(number))
        (folder / "Makefile").write_text(MAKEFILE)
        make = ["make", "-s", "-j2"]
        works = {
            "without": _build(folder, environ, make),
            "with": _build(folder, environ, [str(BIN / "cuwheel"), "record", "-q", "-o", "record", "--", *make]),
        }
        taken = _alternate(works)
    return finish([_measure(taken, 1, "processor time"), _measure(taken, 0, "time")])


def _measure(taken: dict[str, list[tuple[float, float]]], index: int, of: str) -> Measure:
    ours, theirs = (min(each[index] for each in taken[name]) for name in ("with", "without"))
    return Measure(
        what=f"a build of {CUDA_FILES} CUDA and {HOST_FILES} C++ files, recorded: {of}",
        ours=shown(ours),
        theirs=shown(theirs),
        value=(ours / theirs - 1) * 100,
        promised=3.0,
        unit="% more",
        at_most=True,
    )


def _alternate(works: dict[str, Callable[[], object]]) -> dict[str, list[tuple[float, float]]]:
    """Seconds by the clock and of all processors, in turns, after one round unmeasured."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for number in range(ROUNDS + 1):
        for name, work in works.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            lasted = seconds(work)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if number:
                taken[name].append((lasted, used))
    return taken


def _build(folder: Path, environ: dict[str, str], command: list[str]) -> Callable[[], object]:
    def work() -> None:
        for path in (*folder.glob("*.o"), *folder.glob("*.so")):
            path.unlink()
        shutil.rmtree(folder / "record", ignore_errors=True)
        subprocess.run(
            command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    return work


if __name__ == "__main__":
    sys.exit(main())
