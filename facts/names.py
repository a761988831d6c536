"""gpus.toml against the driver's own list of names, joined with pci.ids: device id → chip → capability."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel_core.errors import AmbiguousNameError, UnknownNameError
from cuwheel_core.facts import gpus
from cuwheel_core.facts.tables import tables
from facts.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES, CHIPS = "g_nv_name_released.h", "pci.ids"
_RELEASED = re.compile(r'\{ 0x([0-9A-Fa-f]{4}), 0x\w+, 0x\w+, "([^"]*)" \}')
_NVIDIA = re.compile(r"^10de .*\n((?:[\t#].*\n)*)", re.MULTILINE)
_DEVICE = re.compile(r"^\t([0-9a-f]{4})  (\S+)(?: \[(.*)\])?$", re.MULTILINE)


def check(folder: Path) -> Iterator[Difference]:
    found = _NVIDIA.search((folder / CHIPS).read_text(encoding="utf-8"))
    devices = {int(each[0], 16): (each[1], each[2]) for each in _DEVICE.findall(found[1] if found else "")}
    by_name: dict[str, set[str]] = {}
    for device, name in _RELEASED.findall((folder / NAMES).read_text(encoding="utf-8")):
        by_name.setdefault(name, set()).add(devices.get(int(device, 16), ("", ""))[0])
    for name, chips in by_name.items():
        yield from _differences(name, chips, known=True)
    for chip, names in devices.values():
        for name in re.split(" / ", names):
            yield from _differences(name, {chip}, known=False)


def _differences(name: str, chips: set[str], *, known: bool) -> Iterator[Difference]:
    """`known`: the driver itself calls a GPU so, and the look-up has to know it."""
    try:
        gpu = gpus.find_gpu(name)
    except AmbiguousNameError:
        return
    except UnknownNameError:
        if known:
            yield Difference("gpus.toml", name, "nothing", f"a name of the driver's, {', '.join(sorted(chips))}")
        return
    borrowed = {chip for row in tables().gpus.borrowed if gpu.name in row.names for chip in row.chips}
    for chip in sorted(chips - borrowed):
        capability = _capability(chip)
        if capability and capability != str(gpu.capability):
            yield Difference("gpus.toml", name, f"{gpu.name}, {gpu.capability}", f"{chip}, {capability}")


def _capability(chip: str) -> str | None:
    return next((value for pattern, value in tables().gpus.chips.items() if fnmatchcase(chip, pattern)), None)
