"""What is in a target: its libraries, what its Python loads, what it says of itself."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

from cuwheel.device_code.description import Description
from cuwheel.wheel.variant import Variant
from cuwheel_core.device_code.libraries import Library
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding
from cuwheel_core.wheel.metadata import Distribution


class Bitcode(Struct, frozen=True, kw_only=True):
    """A file of LLVM bitcode for one architecture, of several that differ in that: compilers take the one they need."""

    path: str
    arch: Arch
    bytes: int


class TorchExports(NamedTuple):
    """`names`: of the symbols that were asked for, those that this torch has."""

    version: str
    asked: frozenset[str]
    names: frozenset[str]


class PythonLoad(Struct, frozen=True, kw_only=True):
    """A file of the package's Python that loads a library. `at_import`: importing the package runs that.

    `guarded`: in a `try` that goes on without it, or under a condition.
    """

    path: str
    file: str
    guarded: bool
    at_import: bool


class Survey(Struct, frozen=True, kw_only=True):
    """`imported`: libraries that the package's import loads for certain, where several hold device code.

    `python_loads`: what its Python was seen to load otherwise. `loads_as`: the release by whose rules the package
    chooses its libraries, where its own files show it. `variant`: what a wheel says it is a variant for.
    """

    target: str
    kind: Literal["wheel", "folder", "file", "distribution"]
    size: int
    distribution: Distribution | None
    libraries: tuple[Library, ...]
    findings: tuple[Finding, ...]
    imported: tuple[str, ...] = ()
    python_loads: tuple[PythonLoad, ...] = ()
    loads_as: str | None = None
    variant: Variant | None = None
    description: Description | None = None  # what cuwheel wrote into a wheel that it built
    bitcode: tuple[Bitcode, ...] = ()

    @property
    def torch_symbols(self) -> frozenset[str]:
        """What any of its libraries takes from torch."""
        return frozenset(name for each in self.libraries for name in each.torch_symbols)
