"""The tables of facts, read from `data/*.toml` and checked.

A mistake raises one FactsError that names every mistake, so that an edit is put right in one go.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cuwheel import decode
from cuwheel.errors import FactsError
from cuwheel.facts import problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cuwheel.facts.rows.architectures import Architecture, Architectures
    from cuwheel.facts.rows.checks import Checks
    from cuwheel.facts.rows.cmake import CMake
    from cuwheel.facts.rows.gpu_drivers import GpuDrivers
    from cuwheel.facts.rows.gpus import Gpus
    from cuwheel.facts.rows.libraries import Libraries
    from cuwheel.facts.rows.manylinux import Manylinux
    from cuwheel.facts.rows.packages import Packages
    from cuwheel.facts.rows.toolchains import Toolchains
    from cuwheel.facts.rows.toolkits import Toolkits
    from cuwheel.facts.rows.torch import Torch

DATA = Path(__file__).with_name("data")

T = TypeVar("T")


class Tables:
    """Each file is read when it is first asked for: most verbs need few, and parsing takes longer than they do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def architectures(self) -> Architectures:
        from cuwheel.facts.rows.architectures import Architectures

        return self._read("architectures.toml", Architectures, problems.architectures)

    @cached_property
    def checks(self) -> Checks:
        from cuwheel.facts.rows.checks import Checks

        return self._read("checks.toml", Checks, problems.checks)

    @cached_property
    def cmake(self) -> CMake:
        from cuwheel.facts.rows.cmake import CMake

        return self._read("cmake.toml", CMake, lambda file: problems.sources(file.sources, file.spelling))

    @cached_property
    def gpu_drivers(self) -> GpuDrivers:
        from cuwheel.facts.rows.gpu_drivers import GpuDrivers

        return self._read("gpu_drivers.toml", GpuDrivers, problems.gpu_drivers)

    @cached_property
    def gpus(self) -> Gpus:
        from cuwheel.facts.rows.gpus import Gpus

        return self._read("gpus.toml", Gpus, lambda file: problems.gpus(file, self._known()))

    @cached_property
    def libraries(self) -> Libraries:
        from cuwheel.facts.rows.libraries import Libraries

        return self._read("libraries.toml", Libraries, problems.libraries)

    @cached_property
    def manylinux(self) -> Manylinux:
        from cuwheel.facts.rows.manylinux import Manylinux

        return self._read("manylinux.toml", Manylinux, problems.manylinux)

    @cached_property
    def packages(self) -> Packages:
        from cuwheel.facts.rows.packages import Packages

        return self._read("packages.toml", Packages, problems.packages)

    @cached_property
    def toolchains(self) -> Toolchains:
        from cuwheel.facts.rows.toolchains import Toolchains

        return self._read("toolchains.toml", Toolchains, problems.toolchains)

    @cached_property
    def toolkits(self) -> Toolkits:
        from cuwheel.facts.rows.toolkits import Toolkits

        return self._read("toolkits.toml", Toolkits, lambda file: problems.toolkits(file, self._known()))

    @cached_property
    def torch(self) -> Torch:
        from cuwheel.facts.rows.torch import Torch

        return self._read("torch.toml", Torch, lambda file: problems.torch(file, self._known()))

    def _known(self) -> dict[str, Architecture] | None:
        """By capability, whatever is wrong with the rows otherwise: their own file's check says that."""
        from cuwheel.facts.rows.architectures import Architectures

        try:
            return {row.capability: row for row in self._decode("architectures.toml", Architectures).architecture}
        except FactsError:
            return None

    def _read(self, name: str, type_: type[T], check: Callable[[T], Iterable[str]]) -> T:
        file = self._decode(name, type_)
        if found := [f"{name}: {problem}" for problem in check(file)]:
            raise FactsError(found)
        return file

    def _decode(self, name: str, type_: type[T]) -> T:
        found: list[str] = []
        try:
            data = msgspec.toml.decode((self._folder / name).read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise FactsError([f"{name}: {error}"]) from error
        file = decode.convert(data, type_, name, found)
        if file is None:
            raise FactsError(found)
        return file


@cache
def tables() -> Tables:
    """The tables of this installation."""
    return Tables(DATA)


def load(folder: Path) -> Tables:
    """All tables in `folder` at once; raises FactsError with every problem of every file."""
    found = Tables(folder)
    wrong: list[str] = []
    for name, value in vars(Tables).items():
        if isinstance(value, cached_property):
            try:
                getattr(found, name)
            except FactsError as error:
                wrong += error.problems
    if wrong:
        raise FactsError(wrong)
    return found
