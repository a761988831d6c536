# SPDX-License-Identifier: Apache-2.0
"""nvcc for the kernels, setuptools for the rest."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

OLDEST = "cp310"  # the module is written to the limited API: one wheel from this Python on


def toolkit() -> Path:
    """CUDA_HOME, else where the nvcc on PATH lies."""
    if home := os.environ.get("CUDA_HOME"):
        return Path(home)
    if nvcc := shutil.which("nvcc"):
        return Path(nvcc).resolve().parent.parent
    sys.exit("setuptools_nvcc needs nvcc: set CUDA_HOME, or put it on PATH")


class BuildKernels(build_ext):
    """Compiles what ends in .cu with nvcc, and links the objects into the module."""

    def build_extension(self, ext: Extension) -> None:
        home = toolkit()
        kernels = [source for source in ext.sources if source.endswith(".cu")]
        ext.sources = [source for source in ext.sources if source not in kernels]
        for source in kernels:
            target = Path(self.build_temp, source).with_suffix(".o")
            target.parent.mkdir(parents=True, exist_ok=True)
            archs = shlex.split(os.environ.get("KERNEL_ARCHS", ""))
            options = ["-O2", "-std=c++17", "-Xcompiler", "-fPIC"]
            self.spawn([str(home / "bin" / "nvcc"), *archs, *options, "-c", source, "-o", str(target)])
            ext.extra_objects.append(str(target))
        ext.library_dirs.append(str(next((home / name for name in ("lib64", "lib") if (home / name).is_dir()), home)))
        super().build_extension(ext)


setup(
    ext_modules=[
        Extension(
            "setuptools_nvcc._kernel",
            sources=["src/setuptools_nvcc/module.cpp", "src/setuptools_nvcc/dot.cu"],
            libraries=["cudart_static", "rt", "pthread", "dl"],
            define_macros=[("Py_LIMITED_API", "0x030a0000")],
            py_limited_api=True,
            language="c++",
        )
    ],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": OLDEST}},
)
