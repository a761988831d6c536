"""Which compilers a call would run, and their versions: by asking them, or by what a record heard them say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import options, reader
from cuwheel.building.recording.differences import Pair
from cuwheel.errors import CuwheelError
from cuwheel.machine import compilers as host_compilers
from cuwheel.machine import toolkits
from cuwheel.machine.world import World
from cuwheel.support import process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.recording.differences import Situation

_TIMEOUT_S = 10.0
_ASKS = frozenset({"--version", "-V", "-v", "-dumpversion", "-dumpfullversion"})
_HOST_NAMES = ("g++", "gcc", "c++", "cl.exe")


def host_compiler(situation: Situation) -> str | None:
    """The program that nvcc would call: the one it is given, else the first of its usual names on PATH."""
    chosen = [option.value for option in options.parse(situation.words, "nvcc") if option.name == "--compiler-bindir"]
    world = World(environ=situation.environ, cwd=Path(situation.cwd))
    wanted = chosen[-1] if chosen else situation.environ.get("NVCC_CCBIN")
    if wanted:
        place = Path(situation.cwd, wanted)
        if place.is_dir():
            return next((str(place / name) for name in _HOST_NAMES if (place / name).exists()), str(place))
        on_path = world.which_all(wanted)
        return str(on_path[0]) if on_path else str(place)
    found = (path for name in _HOST_NAMES for path in world.which_all(name)[:1])
    return next((str(path) for path in found), None)


def versions(left: Situation, right: Situation, timeout: float = _TIMEOUT_S) -> dict[str, Pair]:
    """What either side would run, where it is not the same."""
    sides = [dict(_compilers(side, min(timeout, _TIMEOUT_S))) for side in (left, right)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    pairs = {name: Pair(left=sides[0].get(name, "none"), right=sides[1].get(name, "none")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair.left != pair.right}


def _compilers(situation: Situation, timeout: float) -> Iterator[tuple[str, str]]:
    yield situation.tool, _asked_version(situation.program, situation, timeout)
    if situation.tool == "nvcc":
        host = host_compiler(situation)
        yield "host compiler", _asked_version(host, situation, timeout) if host else "none"


def _asked_version(program: str, situation: Situation, timeout: float) -> str:
    try:
        done = process.run([program, "--version"], timeout=timeout, check=False, env=situation.environ)
    except CuwheelError:
        return f"{program} (does not start)"
    banner = done.stdout + done.stderr
    version = toolkits.version_in(banner) or host_compilers.version_in(banner)[1]
    return f"{program} ({version or 'version not known'})"


def reported_versions(record: Record, call: Call) -> dict[str, str]:
    """Facts for `explain`, from calls in which the build asked compilers who they are: of the same program first."""
    facts: dict[str, str] = {}
    asking = [each for each in record.calls if _ASKS.intersection(each.words)]
    for each in sorted(asking, key=lambda each: each.program != call.program):
        banner = "".join(reader.output(record, each))
        if each.tool == "nvcc":
            if version := toolkits.version_in(banner):
                facts.setdefault("nvcc", version)
        else:
            kind, found = host_compilers.version_in(banner)
            if kind and found:
                facts.setdefault(kind, found)
    return facts
