"""The tables of facts, read from `data/*.json`, which `./run tables` makes of the TOML beside them.

A test checks them (`facts/consistency.py`), not every start.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel_core.errors import FactsError
from cuwheel_core.support.structs import decoder

if TYPE_CHECKING:
    from cuwheel_core.facts.rows.cuda_libraries import Libraries
    from cuwheel_core.facts.rows.gpus import Architectures, GpuDrivers, Gpus
    from cuwheel_core.facts.rows.toolkits import Toolkits

DATA = Path(__file__).with_name("data")
# The module of `rows` that describes each file, and the class that is the whole of it.
ROWS = {
    "architectures": "gpus.Architectures",
    "gpu_drivers": "gpus.GpuDrivers",
    "gpus": "gpus.Gpus",
    "libraries": "cuda_libraries.Libraries",
    "toolkits": "toolkits.Toolkits",
}


class Tables:
    """Each file is read when it is first asked for: most answers need few."""

    architectures: Architectures
    gpu_drivers: GpuDrivers
    gpus: Gpus
    libraries: Libraries
    toolkits: Toolkits

    def __getattr__(self, name: str) -> object:
        if name not in ROWS:
            raise AttributeError(name)
        module, _, whole = ROWS[name].partition(".")
        rows = import_module(f"cuwheel_core.facts.rows.{module}")
        path = DATA / f"{name}.json"
        try:
            table: object = decoder(getattr(rows, whole)).decode(path.read_bytes())
        except (OSError, ValueError) as error:
            raise FactsError([f"{path.name}: {error}"]) from error
        setattr(self, name, table)
        return table


@cache
def tables() -> Tables:
    return Tables()
