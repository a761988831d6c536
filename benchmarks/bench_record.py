"""A build of many files with nvcc and the host compiler, with and without `cuwheel record`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BIN, ROOT, Measure, alternate, finish, shown

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
        taken = alternate(works, ROUNDS)
    measure = Measure(
        what=f"a build of {CUDA_FILES} CUDA and {HOST_FILES} C++ files, recorded",
        ours=shown(taken["with"]),
        theirs=shown(taken["without"]),
        value=(taken["with"] / taken["without"] - 1) * 100,
        floor=3.0,
        unit="% slower",
        at_most=True,
    )
    return finish([measure])


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
