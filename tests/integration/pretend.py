"""A driver that is none, compiled once: GPUs where there are none."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

_SOURCES = Path(__file__).parent / "src"


@cache
def folder(*, nvml: bool = True) -> Path:
    """With libcuda.so.1, and NVML's library if wanted; to be put into LD_LIBRARY_PATH."""
    place = Path(mkdtemp(prefix="cuwheel-pretend-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    wanted = {"fake_cuda.c": "libcuda.so.1", **({"fake_nvml.c": "libnvidia-ml.so.1"} if nvml else {})}
    for source, name in wanted.items():
        words = ["gcc", "-O1", "-Wall", "-Werror", "-Wno-stringop-truncation", "-shared", "-fPIC"]
        subprocess.run([*words, "-o", str(place / name), str(_SOURCES / source)], check=True)
    return place


def environ(gpus: str, *, driver: int = 13000, nvml: bool = True, **more: str) -> dict[str, str]:
    """The variables that a program sees on a machine with these GPUs."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "PYTHON", "FAKE"))}
    pretended = {"FAKE_CUDA_GPUS": gpus, "FAKE_CUDA_DRIVER": str(driver), "LD_LIBRARY_PATH": str(folder(nvml=nvml))}
    return {**plain, **pretended, **more}
