"""nvcc and the host compilers it could use: toolkits on the machine, Visual Studio, the build tools beside them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cuwheel.machine.profile import Compiler, CompilerKind, Tool, Toolkit, VisualStudio
from cuwheel.support import codec
from cuwheel_core.facts import versions
from cuwheel_core.support import bounded, opening

if TYPE_CHECKING:
    from cuwheel.machine.world import World


# Visual Studio as it lies on a Windows machine: its installations, their compilers, and CUDA's part in each.
#
# `vswhere` says what is installed; where it is missing or silent, the folders that installations have are looked at.
#
#     C:\Program Files\Microsoft Visual Studio\2022\BuildTools
#         VC\Tools\MSVC\14.44.35207\bin\Hostx64\x64\cl.exe
#         MSBuild\Microsoft\VC\v170\BuildCustomizations\CUDA 13.0.props

_STUDIO_FOLDER = "Microsoft Visual Studio"
_VSWHERE = f"{_STUDIO_FOLDER}/Installer/vswhere.exe"
_ASK = ("-all", "-prerelease", "-products", "*", "-format", "json", "-utf8")
_EDITIONS = "*/*"  # 2022/BuildTools
_TOOLSET = re.compile(r"14\.(\d+)\.(\d+)(?:\.\d+)?", re.ASCII)
_PROPS = re.compile(r"CUDA (\d+\.\d+)\.props", re.ASCII | re.IGNORECASE)
# The 64-bit compiler first; nvcc takes no other since CUDA 11, and hosts of 32 bits run out of memory.
_STUDIO_COMPILERS = ("bin/Hostx64/x64/cl.exe", "bin/HostARM64/x64/cl.exe", "bin/Hostx86/x64/cl.exe")


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
    return tuple(sorted(found, key=lambda each: versions.key(each.version), reverse=True))


def visual_studio_compilers(world: World, studios: tuple[VisualStudio, ...]) -> Iterator[tuple[Path, str]]:
    """Every cl.exe for 64 bits, and the installation that it is of: the newest of each first."""
    for studio in studios:
        folder = world.path(studio.path) / "VC" / "Tools" / "MSVC"
        toolsets = sorted(world.glob(world.shown(folder), "*"), key=lambda path: versions.key(path.name), reverse=True)
        for toolset in toolsets:
            if place := next((path for each in _STUDIO_COMPILERS if (path := toolset / each).is_file()), None):
                yield place, studio.name


def version_by_folder(path: Path) -> str | None:
    """The version of a cl.exe that does not say it: toolset 14.44.35207 holds the compiler 19.44.35207."""
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
        for place in world.glob(f"{folder}/{_STUDIO_FOLDER}", _EDITIONS):
            if (place / "VC" / "Tools" / "MSVC").is_dir():
                name = f"Visual Studio {place.parent.name} {place.name}"
                yield _studio(world, world.shown(place), name, "", f"{folder}/{_STUDIO_FOLDER}")


def _studio(world: World, path: str, name: str, version: str, found_via: str) -> VisualStudio:
    props = world.glob(world.shown(world.path(path) / "MSBuild/Microsoft/VC"), "v*/BuildCustomizations/CUDA *.props")
    named = {match[1] for each in props if (match := _PROPS.fullmatch(each.name))}
    return VisualStudio(
        name=name, version=version, path=path, found_via=found_via, cuda=tuple(sorted(named, key=versions.key))
    )


def program_folders(world: World) -> tuple[str, ...]:
    """Where programs are installed on Windows, those of 64 bits first."""
    found = [world.environ.get(name) for name in ("ProgramW6432", "ProgramFiles", "ProgramFiles(x86)")]
    return tuple(dict.fromkeys(each for each in (*found, "C:\\Program Files", "C:\\Program Files (x86)") if each))


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
    for path, way in _compiler_candidates(world):
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


def _compiler_candidates(world: World) -> Iterator[tuple[Path, str]]:
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
            yield (
                path / ("cl.exe" if world.platform == "win32" else "g++") if opening.is_folder(path) else path,
                name,
            )
            break
    yield from visual_studio_compilers(world, probe_visual_studios(world))


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
    return partner if opening.is_file(partner) else real


def _kind_and_version(world: World, path: Path) -> tuple[CompilerKind | None, str | None]:
    if path.name.lower() == "cl.exe":
        match = _MSVC.search(world.output([path], "compilers") or "")
        return "msvc", match[1] if match else version_by_folder(path)
    return compiler_version_in(world.output([path, "--version"], "compilers") or "")


def compiler_version_in(banner: str) -> tuple[CompilerKind | None, str | None]:
    """Reads the kind and version of a compiler in what `--version` prints."""
    if match := _CLANG.search(banner):
        return "clang", match[1]
    if match := _GCC.search(banner):
        return "gcc", match[1]
    return None, None


# Finds every CUDA toolkit on the machine, and all the ways that lead to it.


_RELEASE = re.compile(r"release \d+\.\d+, V(\d+\.\d+\.\d+)")
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_CUDA_H = re.compile(r"#define\s+CUDA_VERSION\s+(\d+)")
_ROOT_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT")
_FOLDERS = (
    ("/usr/local", "cuda*"),
    ("/opt", "cuda*"),
    ("/usr/lib", "cuda"),
    ("/usr/lib", "nvidia-cuda-toolkit"),
)
_ON_WINDOWS = "NVIDIA GPU Computing Toolkit/CUDA"
_VERSIONED = re.compile(r"CUDA_PATH_V(\d+)_(\d+)", re.ASCII | re.IGNORECASE)
# Beside the whole toolkit of CUDA 13's packages, the parts that those of CUDA 12 and 11 bring.
_IN_SITE_PACKAGES = ("nvidia/cu*", "nvidia/cuda_nvcc")


def probe_toolkits(
    world: World, site_packages: Sequence[Path], *, ask_nvcc: bool = True, folder: str | None = None
) -> tuple[Toolkit, ...]:
    """`ask_nvcc`: False for those alone whose files name their release: nothing is started. `folder`: that one."""
    ways: dict[Path, list[str]] = {}
    named = [(world.path(folder), f"its folder {folder}")] if folder else None
    for root, way in named or _candidates(world, site_packages, ask_nvcc=ask_nvcc):
        ways.setdefault(_resolved(root), []).append(way)
    found = []
    for root, found_via in ways.items():
        nvcc = nvcc_in(root)
        version = _version(world, root, nvcc if ask_nvcc else None)
        if version is None:
            world.note("toolkits", world.shown(root), f"no CUDA toolkit (by {', '.join(found_via)})")
            continue
        found.append(
            Toolkit(
                version=version,
                root=world.shown(root),
                nvcc=world.shown(nvcc) if nvcc else None,
                found_via=tuple(dict.fromkeys(found_via)),
            )
        )
    return tuple(found)


def _candidates(world: World, site_packages: Sequence[Path], *, ask_nvcc: bool) -> Iterator[tuple[Path, str]]:
    for index, nvcc in enumerate(world.which_all("nvcc")):
        yield _root_of(world, nvcc, ask_nvcc=ask_nvcc), "PATH" if index == 0 else "PATH, shadowed"
    yield from _from_variables(world, ask_nvcc=ask_nvcc)
    for folder, pattern in _folders(world):
        for root in world.glob(folder, pattern):
            yield root, f"{folder}/{pattern}"
    for packages in site_packages:
        for pattern in _IN_SITE_PACKAGES:
            for root in sorted(packages.glob(pattern)):
                yield root, "site-packages"


def _folders(world: World) -> Iterator[tuple[str, str]]:
    if world.platform == "win32":
        yield from ((f"{each}\\{_ON_WINDOWS}".replace("/", "\\"), "v*") for each in program_folders(world))
    else:
        yield from _FOLDERS


def _from_variables(world: World, *, ask_nvcc: bool) -> Iterator[tuple[Path, str]]:
    for name in _ROOT_VARIABLES:
        if value := world.environ.get(name):
            yield world.path(value), name
    # The installers for Windows set one for each toolkit, and CUDA_PATH to that of the last.
    for name in versioned_variables(world):
        yield world.path(world.environ[name]), name
    if compiler := world.environ.get("CUDACXX"):
        on_path = [] if "/" in compiler or "\\" in compiler else world.which_all(compiler)
        nvcc = on_path[0] if on_path else world.path(compiler)
        yield _root_of(world, nvcc, ask_nvcc=ask_nvcc), "CUDACXX"
    if prefix := world.environ.get("CONDA_PREFIX"):
        yield world.path(prefix), "CONDA_PREFIX"


def versioned_variables(world: World) -> list[str]:
    """`CUDA_PATH_V12_8` and the like, which lead to toolkits on Windows."""
    return sorted(name for name, value in world.environ.items() if value and _VERSIONED.fullmatch(name))


def _root_of(world: World, nvcc: Path, *, ask_nvcc: bool) -> Path:
    """The toolkit an nvcc belongs to: behind links, above its `bin`.

    Distributions put a script on PATH that calls the real one elsewhere; that one's dry run names its place.
    """
    real = _resolved(nvcc)
    if ask_nvcc and opening.is_file(real) and not opening.is_file(real.parent / "nvcc.profile"):
        dry_run = world.output([real, "--dryrun", "-E", "-x", "cu", os.devnull], "toolkits") or ""
        if match := _TOP.search(dry_run):
            return _resolved(world.path(match[1].strip()))
    return real.parent.parent


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path


def nvcc_in(root: Path) -> Path | None:
    """Its compiler driver, as either system calls it."""
    return next((path for name in ("nvcc", "nvcc.exe") if opening.is_file(path := root / "bin" / name)), None)


def _version(world: World, root: Path, nvcc: Path | None) -> str | None:
    """nvcc's own word first: version.json tells the whole toolkit's release, and is often missing."""
    if nvcc and (version := nvcc_version_in(world.output([nvcc, "--version"], "toolkits") or "")):
        return version
    if version := _from_version_json(world.text(world.shown(root / "version.json"))):
        return version
    # Copied from a board without its links, or one with nothing but libraries for another processor.
    for header in (root / "include" / "cuda.h", *world.glob(world.shown(root), "targets/*/include/cuda.h")):
        if match := _CUDA_H.search(world.text(world.shown(header)) or ""):
            number = bounded.digits(match[1])
            return f"{number // 1000}.{number % 1000 // 10}"
    return None


def nvcc_version_in(banner: str) -> str | None:
    """Reads the version in what `nvcc --version` prints."""
    match = _RELEASE.search(banner)
    return match[1] if match else None


def _from_version_json(text: str | None) -> str | None:
    try:
        version = codec.decode(text or "")["cuda"]["version"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) else None
