"""`fleet.toml`: named machines that a person wrote down. Every problem of the file at once."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import ConfigurationError, UnknownNameError, UnreadableError
from cuwheel.machine import fleet
from cuwheel.machine.fleet import Jit, Machine, Software
from cuwheel.support import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HINT = (
    'describe a machine as: [[machine]], name = "rack 7", gpu = "h100" (or capability), driver = "580.65.06", count = 8'
)
_VERSION = re.compile(r"\d+(\.\d+)*([-+].*)?", re.ASCII)
_VERSIONS = ("driver", "driver_cuda", "glibc", "glibcxx", "python", "torch", "torch_cuda", "jax_cuda")


class FleetMachine(Software, frozen=True, kw_only=True):
    """A `[[machine]]` as it is written. `l4t`: a release, or true where it is not known which."""

    name: str
    gpu: str | None = None
    capability: str | None = None
    l4t: str | bool | None = None
    jit: Jit = "allowed"
    libraries: tuple[str, ...] | None = None
    count: int = 1


_SAME = tuple(each for each in FleetMachine.__struct_fields__ if each not in ("name", "gpu", "capability", "l4t"))


def read(path: Path) -> tuple[Machine, ...]:
    """The machines of a fleet file. Raises ConfigurationError."""
    try:
        found = path.stat()
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    return _read(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int, _size: int) -> tuple[Machine, ...]:
    """Once for each state of the file: the command line looks whether it is sound before any work begins."""
    problems: list[str] = []
    rows = _rows(path, problems)
    made = [_machine(row, f"machine {row.name!r}", problems) for row in rows]
    names = Counter(row.name for row in rows)
    problems += [f"two machines are named {name!r}" for name, count in names.items() if count > 1]
    if problems:
        raise ConfigurationError(path, problems, _HINT)
    return tuple(machine for machine in made if machine)


def _rows(path: Path, problems: list[str]) -> list[FleetMachine]:
    """Each machine on its own: one that cannot be read does not hide what is wrong with the others."""
    data = decode.configuration(path, _HINT)
    problems += [f"unknown key {key!r}" for key in data if key != "machine"]
    tables = data.get("machine")
    if not isinstance(tables, list) or not tables:
        problems.append("it has no [[machine]]")
        return []
    found = (decode.convert(each, FleetMachine, f"machine[{index}]", problems) for index, each in enumerate(tables))
    return [row for row in found if row]


def _machine(row: FleetMachine, where: str, problems: list[str]) -> Machine | None:
    problems += [f"{where}: {each}" for each in _problems(row)]
    try:
        base = fleet.from_gpu(row.gpu or row.capability or "", row.name)
        if row.gpu and row.capability and fleet.from_gpu(row.capability).capability != base.capability:
            problems.append(f"{where}: {row.gpu!r} has capability {base.capability}, not {row.capability}")
    except UnknownNameError as error:
        if row.gpu or row.capability:
            hint = f" ({error.hint})" if error.hint else ""
            problems.append(f"{where}: {error.message}{hint}")
        return None
    written = {name: value for name in _SAME if (value := getattr(row, name)) is not None}
    if row.l4t is not None:
        written |= {"tegra": bool(row.l4t), "l4t": row.l4t if isinstance(row.l4t, str) else None}
    machine = fleet.with_l4t(replace(base, **written))
    return fleet.Refinement(cpu=machine.cpu, python=machine.python).apply(machine)


def _problems(row: FleetMachine) -> Iterator[str]:
    if not (row.gpu or row.capability):
        yield "it has neither gpu nor capability"
    if row.count < 1:
        yield f"count is {row.count}"
    for name in _VERSIONS:
        value = getattr(row, name)
        plain = value.removesuffix(fleet.WITHOUT_GIL) if value and name == "python" else value
        if plain is not None and not _VERSION.fullmatch(plain):
            yield f"{name} = {value!r} is not a version"
