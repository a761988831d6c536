"""Which of several wheels of one release an installer takes: the order of its tags, for this machine or another."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from packaging import tags

from cuwheel.facts import versions
from cuwheel.machine import fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.machine.fleet import Machine
    from cuwheel.wheel.metadata import WheelName

_GLIBC_2 = 60  # a minor version that no system has yet
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_WINDOWS = {"x86_64": "win_amd64", "aarch64": "win_arm64"}
LAST = sys.maxsize


def of(machine: Machine) -> Mapping[str, int]:
    """Tag → its place. What the machine does not say is taken as it is here: somebody asks for another GPU alone."""
    python = (
        tuple(int(each) for each in (machine.python or "").split(".")[:2] if each.isdigit()) or sys.version_info[:2]
    )
    platforms = list(_platforms(machine))
    interpreter = f"cp{python[0]}{python[1]}" if len(python) > 1 else f"cp{python[0]}"
    abis = [f"{interpreter}t"] if machine.free_threaded else None
    found = [
        *tags.cpython_tags(python, abis, platforms=platforms),
        *tags.compatible_tags(python, interpreter, platforms=platforms),
    ]
    return {str(tag): place for place, tag in reversed(list(enumerate(found)))}


def place(wheel: WheelName | None, order: Mapping[str, int]) -> int:
    """The lowest is taken; a source distribution comes after all wheels."""
    if wheel is None:
        return LAST
    return min(order.get(each, LAST) for each in wheel.tags)


def platform_of(machine: Machine) -> str:
    """The platform that an installer there prefers."""
    return next(_platforms(machine))


def _platforms(machine: Machine) -> Iterator[str]:
    machine = fleet.with_platform(machine)
    cpu = machine.cpu or ""
    if machine.os == "windows":
        yield _WINDOWS.get(cpu, f"win_{cpu}")
        return
    newest = versions.key(machine.glibc)[1] if machine.glibc else _GLIBC_2
    for minor in range(newest, 4, -1):
        yield f"manylinux_2_{minor}_{cpu}"
        if minor in _LEGACY:
            yield f"{_LEGACY[minor]}_{cpu}"
    yield f"linux_{cpu}"
