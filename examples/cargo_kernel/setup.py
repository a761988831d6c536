# SPDX-License-Identifier: Apache-2.0
"""cargo makes the library, setuptools packs it: one wheel for every Python."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
LIBRARY = "libcargo_kernel.so"


class BuildCrate(build_py):
    """The crate has no dependencies: cargo needs no network."""

    def run(self) -> None:
        super().run()
        target = Path(self.build_lib).resolve().parent / "cargo"
        options = ["--release", "--offline", "--locked", "--target-dir", str(target)]
        self.spawn(["cargo", "build", *options, "--manifest-path", str(HERE / "crate" / "Cargo.toml")])
        shutil.copy2(target / "release" / LIBRARY, Path(self.build_lib, "cargo_kernel", LIBRARY))


class WheelForAllPythons(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildCrate, "bdist_wheel": WheelForAllPythons}, distclass=WithLibrary)
