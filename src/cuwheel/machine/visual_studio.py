"""Visual Studio as it lies on a Windows machine: its installations, their compilers, and CUDA's part in each.

`vswhere` says what is installed; where it is missing or silent, the folders that installations have are looked at.

    C:\\Program Files\\Microsoft Visual Studio\\2022\\BuildTools
        VC\\Tools\\MSVC\\14.44.35207\\bin\\Hostx64\\x64\\cl.exe
        MSBuild\\Microsoft\\VC\\v170\\BuildCustomizations\\CUDA 13.0.props
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from cuwheel.machine.profile import VisualStudio
from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.machine.world import World

_FOLDER = "Microsoft Visual Studio"
_VSWHERE = f"{_FOLDER}/Installer/vswhere.exe"
_ASK = ("-all", "-prerelease", "-products", "*", "-format", "json", "-utf8")
_EDITIONS = "*/*"  # 2022/BuildTools
_TOOLSET = re.compile(r"14\.(\d+)\.(\d+)(?:\.\d+)?", re.ASCII)
_PROPS = re.compile(r"CUDA (\d+\.\d+)\.props", re.ASCII | re.IGNORECASE)
# The 64-bit compiler first; nvcc takes no other since CUDA 11, and hosts of 32 bits run out of memory.
_COMPILERS = ("bin/Hostx64/x64/cl.exe", "bin/HostARM64/x64/cl.exe", "bin/Hostx86/x64/cl.exe")


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    """Of what vswhere prints."""

    installation_path: str
    installation_version: str = ""
    display_name: str = ""


def probe_visual_studios(world: World) -> tuple[VisualStudio, ...]:
    """Newest first; none on other systems."""
    if world.platform != "win32":
        return ()
    found = list(_by_vswhere(world)) or list(_by_folders(world))
    world.note("Visual Studio", "vswhere and its usual folders", f"{len(found)} installations")
    return tuple(sorted(found, key=lambda each: _key(each.version), reverse=True))


def compilers(world: World, studios: tuple[VisualStudio, ...]) -> Iterator[tuple[Path, str]]:
    """Every cl.exe for 64 bits, and the installation that it is of: the newest of each first."""
    for studio in studios:
        folder = world.path(studio.path) / "VC" / "Tools" / "MSVC"
        toolsets = sorted(world.glob(world.shown(folder), "*"), key=lambda path: _key(path.name), reverse=True)
        for toolset in toolsets:
            if place := next((path for each in _COMPILERS if (path := toolset / each).is_file()), None):
                yield place, studio.name


def version_by_folder(path: Path) -> str | None:
    """Of a cl.exe that does not say it: toolset 14.44.35207 holds the compiler 19.44.35207."""
    match = next((match for part in reversed(path.parts) if (match := _TOOLSET.fullmatch(part))), None)
    return f"19.{match[1]}.{match[2]}" if match else None


def _by_vswhere(world: World) -> Iterator[VisualStudio]:
    for folder in program_folders(world):
        tool = world.path(folder) / _VSWHERE
        if not tool.is_file():
            continue
        try:
            rows = codec.decode(world.output([tool, *_ASK], "Visual Studio") or "[]", list[_Row])
        except msgspec.DecodeError as error:
            world.note("Visual Studio", world.shown(tool), f"its answer cannot be read: {error}")
            return
        for row in rows:
            name = row.display_name or "Visual Studio"
            yield _studio(world, row.installation_path, name, row.installation_version, "vswhere")
        return


def _by_folders(world: World) -> Iterator[VisualStudio]:
    for folder in program_folders(world):
        for place in world.glob(f"{folder}/{_FOLDER}", _EDITIONS):
            if (place / "VC" / "Tools" / "MSVC").is_dir():
                name = f"Visual Studio {place.parent.name} {place.name}"
                yield _studio(world, world.shown(place), name, "", f"{folder}/{_FOLDER}")


def _studio(world: World, path: str, name: str, version: str, found_via: str) -> VisualStudio:
    props = world.glob(world.shown(world.path(path) / "MSBuild/Microsoft/VC"), "v*/BuildCustomizations/CUDA *.props")
    named = {match[1] for each in props if (match := _PROPS.fullmatch(each.name))}
    return VisualStudio(name=name, version=version, path=path, found_via=found_via, cuda=tuple(sorted(named, key=_key)))


def program_folders(world: World) -> tuple[str, ...]:
    """Where programs are installed on Windows, those of 64 bits first."""
    found = [world.environ.get(name) for name in ("ProgramW6432", "ProgramFiles", "ProgramFiles(x86)")]
    return tuple(dict.fromkeys(each for each in (*found, "C:\\Program Files", "C:\\Program Files (x86)") if each))


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:6])
