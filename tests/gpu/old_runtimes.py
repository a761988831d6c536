"""Programs with CUDA's earlier runtimes, for traced.py: python3 -m tests.gpu.old_runtimes FOLDER

Needs no GPU: made where there is a network, and taken along. nvcc 12.4 makes all of them; those of 12.1 and 11.8 come
from the package index, and a program finds its own beside itself.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from cuwheel.api.wheels import toolchain
from cuwheel.support import process
from tests.fixtures import cache
from tests.gpu.traced_programs import ARCH_80, ARCH_90, SOURCES

_RUNTIMES = {
    "shared-12.1": ("nvidia-cuda-runtime-cu12==12.1.105", "libcudart.so.12"),
    "shared-11.8": ("nvidia-cuda-runtime-cu11==11.8.89", "libcudart.so.11.0"),
}


def make(folder: Path) -> None:
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    home = toolchain("12.4").toolkits[0].root
    nvcc = str(Path(home, "bin", "nvcc"))
    process.run([nvcc, *ARCH_80, "-o", folder / "static-12.4", SOURCES / "traced.cu"], timeout=300)
    process.run([nvcc, *ARCH_90, "-o", folder / "failing-12.4", SOURCES / "failing.cu"], timeout=300)
    options = ["-shared", "-Xcompiler", "-fPIC", *ARCH_90]
    process.run([nvcc, *options, "-o", folder / "libcrooked-12.4.so", SOURCES / "library.cu"], timeout=300)
    for name, (requirement, runtime) in _RUNTIMES.items():
        with tempfile.TemporaryDirectory() as scratch:
            cache.pip_install(Path(scratch), "--no-deps", requirement)
            found = next(Path(scratch).rglob(runtime))
            shutil.copy(found, folder / "lib")
        words = ("-cudart", "none", "-Xlinker", folder / "lib" / runtime, "-Xlinker", "-rpath=$ORIGIN/lib")
        process.run([nvcc, *ARCH_80, *words, "-o", folder / name, SOURCES / "traced.cu"], timeout=300)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
