"""Finds every CUDA toolkit on the machine, and all the ways that lead to it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec

from cuwheel.machine.compilers import program_folders
from cuwheel.machine.profile import Toolkit
from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.machine.world import World

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


def probe_toolkits(world: World, site_packages: Sequence[Path]) -> tuple[Toolkit, ...]:
    ways: dict[Path, list[str]] = {}
    for root, way in _candidates(world, site_packages):
        ways.setdefault(_resolved(root), []).append(way)
    found = []
    for root, found_via in ways.items():
        nvcc = nvcc_in(root)
        version = _version(world, root, nvcc)
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


def _candidates(world: World, site_packages: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    for index, nvcc in enumerate(world.which_all("nvcc")):
        yield _root_of(world, nvcc), "PATH" if index == 0 else "PATH, shadowed"
    yield from _from_variables(world)
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


def _from_variables(world: World) -> Iterator[tuple[Path, str]]:
    for name in _ROOT_VARIABLES:
        if value := world.environ.get(name):
            yield world.path(value), name
    # The installers for Windows set one for each toolkit, and CUDA_PATH to that of the last.
    for name in versioned_variables(world):
        yield world.path(world.environ[name]), name
    if compiler := world.environ.get("CUDACXX"):
        on_path = [] if "/" in compiler or "\\" in compiler else world.which_all(compiler)
        yield _root_of(world, on_path[0] if on_path else world.path(compiler)), "CUDACXX"
    if prefix := world.environ.get("CONDA_PREFIX"):
        yield world.path(prefix), "CONDA_PREFIX"


def versioned_variables(world: World) -> list[str]:
    """`CUDA_PATH_V12_8` and the like, which lead to toolkits on Windows."""
    return sorted(name for name, value in world.environ.items() if value and _VERSIONED.fullmatch(name))


def _root_of(world: World, nvcc: Path) -> Path:
    """The toolkit an nvcc belongs to: behind links, above its `bin`.

    Distributions put a script on PATH that calls the real one elsewhere; that one's dry run names its place.
    """
    real = _resolved(nvcc)
    if not (real.parent / "nvcc.profile").exists() and real.is_file():
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
    return next((path for name in ("nvcc", "nvcc.exe") if (path := root / "bin" / name).is_file()), None)


def _version(world: World, root: Path, nvcc: Path | None) -> str | None:
    """nvcc's own word first: version.json tells the whole toolkit's release, and is often missing."""
    if nvcc and (version := version_in(world.output([nvcc, "--version"], "toolkits") or "")):
        return version
    if version := _from_version_json(world.text(world.shown(root / "version.json"))):
        return version
    if match := _CUDA_H.search(world.text(world.shown(root / "include" / "cuda.h")) or ""):
        number = int(match[1])
        return f"{number // 1000}.{number % 1000 // 10}"
    return None


def version_in(banner: str) -> str | None:
    """Of what `nvcc --version` prints."""
    match = _RELEASE.search(banner)
    return match[1] if match else None


def _from_version_json(text: str | None) -> str | None:
    try:
        version = codec.decode(text or "")["cuda"]["version"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return version if isinstance(version, str) else None
