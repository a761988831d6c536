"""Host compilers that nvcc could use, and the build tools beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.machine import visual_studio
from cuwheel.machine.profile import Compiler, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.machine.profile import CompilerKind
    from cuwheel.machine.world import World

_VARIABLES = ("CXX", "CUDAHOSTCXX", "NVCC_CCBIN", "CC")
# conda's have a prefix, and no other name: x86_64-conda-linux-gnu-g++. One for another processor is a cross compiler.
_ON_PATH = re.compile(
    r"(?:(?P<cpu>[a-z0-9_]+?)-conda(?:_\w+)?-linux-gnu-)?(?:gcc|g\+\+|clang\+\+)(?:-\d+(?:\.\d+)?)?(?:\.exe)?|cl\.exe"
)
_TOOLS = ("cmake", "ninja")
_DOTTED = re.compile(r"\d+\.\d+(?:\.\d+)*")
_CLANG = re.compile(r"clang version (\d+(?:\.\d+)+)")
_GCC = re.compile(r"^\S+ \([^\n]*\) (\d+(?:\.\d+)+)", re.MULTILINE)
_MSVC = re.compile(r"Version (\d+\.\d+(?:\.\d+)*)")


def probe_compilers(world: World) -> tuple[Compiler, ...]:
    """One for each program, with all the names and variables that lead to it."""
    ways: dict[Path, list[tuple[Path, str]]] = {}
    for path, way in _candidates(world):
        ways.setdefault(_identity(path), []).append((path, way))
    found = []
    for identity, leading in ways.items():
        kind, version = _kind_and_version(world, identity)
        if kind and version:
            path = max((path for path, _ in leading), key=_telling)
            found_via = tuple(dict.fromkeys(way for _, way in leading))
            found.append(Compiler(kind=kind, version=version, path=world.shown(path), found_via=found_via))
    return tuple(found)


def probe_tools(world: World) -> tuple[Tool, ...]:
    first = ((name, path) for name in _TOOLS for path in world.which_all(name)[:1])
    answers = ((name, path, _DOTTED.search(world.output([path, "--version"], name) or "")) for name, path in first)
    return tuple(Tool(name=name, version=match[0], path=world.shown(path)) for name, path, match in answers if match)


def _candidates(world: World) -> Iterator[tuple[Path, str]]:
    seen: set[str] = set()
    for folder in world.path_folders():
        for path in world.glob(world.shown(folder), "*"):
            match = _ON_PATH.fullmatch(path.name.lower())
            if path.name not in seen and match and match["cpu"] in (None, world.cpu):
                seen.add(path.name)
                yield path, f"PATH: {path.name}"
    for name in _VARIABLES:
        if not (value := world.environ.get(name)):
            continue
        for path in world.which_all(value) or [world.path(value)]:
            # NVCC_CCBIN may be a folder.
            yield path / ("cl.exe" if world.platform == "win32" else "g++") if path.is_dir() else path, name
            break
    yield from visual_studio.compilers(world, visual_studio.probe_visual_studios(world))


def _telling(path: Path) -> tuple[bool, int]:
    """The name to show: the C++ compiler's, and `g++-12` rather than `g++`, which may be another tomorrow."""
    return "++" in path.name, len(path.name)


def _identity(path: Path) -> Path:
    """gcc and g++ of one installation are one compiler to nvcc; links lead to one program."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return path
    partner = real.with_name(real.name.replace("gcc", "g++"))
    return partner if partner.exists() else real


def _kind_and_version(world: World, path: Path) -> tuple[CompilerKind | None, str | None]:
    if path.name.lower() == "cl.exe":
        match = _MSVC.search(world.output([path], "compilers") or "")
        return "msvc", match[1] if match else visual_studio.version_by_folder(path)
    return version_in(world.output([path, "--version"], "compilers") or "")


def version_in(banner: str) -> tuple[CompilerKind | None, str | None]:
    """Of what `--version` prints."""
    if match := _CLANG.search(banner):
        return "clang", match[1]
    if match := _GCC.search(banner):
        return "gcc", match[1]
    return None, None
