"""The tables of facts, read from `data/*.toml`. A test checks them (`facts/consistency.py`), not every start."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.support import codec

if TYPE_CHECKING:
    from cuwheel.facts.rows.architectures import Architectures
    from cuwheel.facts.rows.checks import Checks
    from cuwheel.facts.rows.ci import Ci
    from cuwheel.facts.rows.cmake import CMake
    from cuwheel.facts.rows.errors import Errors
    from cuwheel.facts.rows.gpu_drivers import GpuDrivers
    from cuwheel.facts.rows.gpus import Gpus
    from cuwheel.facts.rows.indexes import Indexes
    from cuwheel.facts.rows.libraries import Libraries
    from cuwheel.facts.rows.manylinux import Manylinux
    from cuwheel.facts.rows.packages import Packages
    from cuwheel.facts.rows.toolchains import Toolchains
    from cuwheel.facts.rows.toolkits import Toolkits
    from cuwheel.facts.rows.torch import Torch
    from cuwheel.facts.rows.variants import Variants

DATA = Path(__file__).with_name("data")


class Tables:
    """Each file is read when it is first asked for: most verbs need few, and parsing takes longer than they do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def architectures(self) -> Architectures:
        from cuwheel.facts.rows.architectures import Architectures

        return codec.own_table(self._folder / "architectures.toml", Architectures)

    @cached_property
    def checks(self) -> Checks:
        from cuwheel.facts.rows.checks import Checks

        return codec.own_table(self._folder / "checks.toml", Checks)

    @cached_property
    def ci(self) -> Ci:
        from cuwheel.facts.rows.ci import Ci

        return codec.own_table(self._folder / "ci.toml", Ci)

    @cached_property
    def cmake(self) -> CMake:
        from cuwheel.facts.rows.cmake import CMake

        return codec.own_table(self._folder / "cmake.toml", CMake)

    @cached_property
    def errors(self) -> Errors:
        from cuwheel.facts.rows.errors import Errors

        return codec.own_table(self._folder / "errors.toml", Errors)

    @cached_property
    def gpu_drivers(self) -> GpuDrivers:
        from cuwheel.facts.rows.gpu_drivers import GpuDrivers

        return codec.own_table(self._folder / "gpu_drivers.toml", GpuDrivers)

    @cached_property
    def gpus(self) -> Gpus:
        from cuwheel.facts.rows.gpus import Gpus

        return codec.own_table(self._folder / "gpus.toml", Gpus)

    @cached_property
    def indexes(self) -> Indexes:
        from cuwheel.facts.rows.indexes import Indexes

        return codec.own_table(self._folder / "indexes.toml", Indexes)

    @cached_property
    def libraries(self) -> Libraries:
        from cuwheel.facts.rows.libraries import Libraries

        return codec.own_table(self._folder / "libraries.toml", Libraries)

    @cached_property
    def manylinux(self) -> Manylinux:
        from cuwheel.facts.rows.manylinux import Manylinux

        return codec.own_table(self._folder / "manylinux.toml", Manylinux)

    @cached_property
    def packages(self) -> Packages:
        from cuwheel.facts.rows.packages import Packages

        return codec.own_table(self._folder / "packages.toml", Packages)

    @cached_property
    def toolchains(self) -> Toolchains:
        from cuwheel.facts.rows.toolchains import Toolchains

        return codec.own_table(self._folder / "toolchains.toml", Toolchains)

    @cached_property
    def toolkits(self) -> Toolkits:
        from cuwheel.facts.rows.toolkits import Toolkits

        return codec.own_table(self._folder / "toolkits.toml", Toolkits)

    @cached_property
    def torch(self) -> Torch:
        from cuwheel.facts.rows.torch import Torch

        return codec.own_table(self._folder / "torch.toml", Torch)

    @cached_property
    def variants(self) -> Variants:
        from cuwheel.facts.rows.variants import Variants

        return codec.own_table(self._folder / "variants.toml", Variants)


@cache
def tables() -> Tables:
    """The tables of this installation."""
    return Tables(DATA)
