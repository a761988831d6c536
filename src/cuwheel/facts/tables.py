"""The tables of facts that the core does not have, read from `data/*.toml`. A test checks them, not every start."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.support import codec

if TYPE_CHECKING:
    from cuwheel.facts.rows.cuda_errors import Errors
    from cuwheel.facts.rows.packages import Manylinux, Packages, Torch
    from cuwheel.facts.rows.services import Checks, Ci, Indexes, Variants
    from cuwheel.facts.rows.toolchains import CMake, Toolchains

DATA = Path(__file__).with_name("data")
# The module of `rows` that describes each file, and the class that is the whole of it.
_ROWS = {
    "checks": "services.Checks",
    "ci": "services.Ci",
    "cmake": "toolchains.CMake",
    "errors": "cuda_errors.Errors",
    "indexes": "services.Indexes",
    "manylinux": "packages.Manylinux",
    "packages": "packages.Packages",
    "toolchains": "toolchains.Toolchains",
    "torch": "packages.Torch",
    "variants": "services.Variants",
}


class Tables:
    """Each file is read when it is first asked for: most verbs need few, and parsing takes longer than they do."""

    checks: Checks
    ci: Ci
    cmake: CMake
    errors: Errors
    indexes: Indexes
    manylinux: Manylinux
    packages: Packages
    toolchains: Toolchains
    torch: Torch
    variants: Variants

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> object:
        if name not in _ROWS:
            raise AttributeError(name)
        module, _, whole = _ROWS[name].partition(".")
        rows = import_module(f"cuwheel.facts.rows.{module}")
        table: object = codec.own_table(self._folder / f"{name}.toml", getattr(rows, whole))
        setattr(self, name, table)
        return table


@cache
def tables() -> Tables:
    return Tables(DATA)
