"""Where a toolkit is made: what providers may look at, archives unpacked, and what packages leave out put right."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import MalformedError
from cuwheel.facts import versions
from cuwheel.machine.world import World
from cuwheel.support import log, process
from cuwheel.toolchains import archives, store, stub
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import Installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.machine.profile import Attempt
    from cuwheel.toolchains.toolchain import HostCompiler, Recipe


# What providers may look at: the machine, and the store.


class Surroundings(Struct, frozen=True, kw_only=True):
    machine: World
    store: Store

    @classmethod
    def here(cls, store: Store) -> Surroundings:
        return cls(machine=World.here(), store=store)

    @property
    def trail(self) -> list[Attempt]:
        return self.machine.trail


# What packages leave out of a toolkit, put right: links, run bits, a libcuda to link with.

_RELEASE = re.compile(r"release \d+\.\d+, V(\d+\.\d+\.\d+)")
_VERSION_S = 60.0
_PROGRAM_FOLDERS = ("bin", "nvvm/bin")
_VERSIONED = re.compile(r"(lib.+?\.so)\.(\d[\d.]*)")


def complete_toolkit(root: Path, cpu: str) -> None:
    """Make a folder of unpacked packages a toolkit that CMake, torch and a plain nvcc can use.

    Those for Windows need none of it: their libraries have no versions in their names, and cuda.lib is there.
    """
    if (root / "bin" / "nvcc.exe").is_file():
        return
    for step in STEPS:
        step(root)
    write_stub(root, root / "lib" / "stubs", cpu)


def write_stub(root: Path, folder: Path, cpu: str) -> None:
    """Unless the toolkit brought NVIDIA's own."""
    header = root / "include" / "cuda.h"
    target = folder / "libcuda.so"
    if not target.exists() and header.is_file():
        stub.write(target, header.read_text(encoding="utf-8", errors="replace"), cpu)


def nvcc_version(nvcc: Path) -> str:
    """What it says of itself: also the proof that it runs."""
    version = version_in(process.run([nvcc, "--version"], timeout=_VERSION_S).stdout)
    if version is None:
        raise MalformedError(nvcc, "does not say which version it is")
    return version


def version_in(output: str) -> str | None:
    match = _RELEASE.search(output)
    return match[1] if match else None


def _let_run(root: Path) -> None:
    """Wheels may arrive without the run bit."""
    for folder in _PROGRAM_FOLDERS:
        for path in (root / folder).glob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _drop_dangling(root: Path) -> None:
    """Development packages link to libraries of packages that were not asked for."""
    for path in (root / "lib").glob("*.so*"):
        if path.is_symlink() and not path.exists():
            path.unlink()


def _link_folders(root: Path) -> None:
    """`lib64`, where CMake and torch look; libnvvm below nvvm/, where nvlink looks."""
    (root / "lib").mkdir(exist_ok=True)
    if not (root / "lib64").exists():
        (root / "lib64").symlink_to("lib")
    if (root / "nvvm").is_dir() and not (root / "nvvm" / "lib64").exists():
        (root / "nvvm" / "lib64").symlink_to("../lib")


def _link_libraries(root: Path) -> None:
    """`libcublas.so`, what `-lcublas` looks for, beside `libcublas.so.13`: to the newest where there are several."""
    newest: dict[str, str] = {}
    for path in (root / "lib").glob("lib*.so.*"):
        if match := _VERSIONED.fullmatch(path.name):
            name, version = match.groups()
            newest[name] = max(newest.get(name, ""), version, key=versions.key)
    for name, version in newest.items():
        link = root / "lib" / name
        if not link.exists():
            link.symlink_to(f"{name}.{version}")


STEPS: tuple[Callable[[Path], None], ...] = (_let_run, _drop_dangling, _link_folders, _link_libraries)


# Workplace a toolkit from archives: what index, redist and debian share.


class Workplace(Struct, frozen=True, kw_only=True):
    """`scratch` is filled, and then becomes `final`."""

    scratch: Path
    final: Path
    supply: Supply


def install_archives(recipe: Recipe, workplace: Workplace) -> Installed:
    root = workplace.scratch.resolve() / "root"
    root.mkdir()
    for archive, path in zip(recipe.archives, archives.obtain_archives(recipe.archives, workplace.supply), strict=True):
        archives.unpack(archive, path, root)
    complete_toolkit(root, recipe.platform.rpartition("-")[2])
    log.debug("asking the new nvcc for its version")
    return installed(recipe, workplace, root=workplace.final / "root", version=nvcc_version(root / "bin" / "nvcc"))


def installed(
    recipe: Recipe,
    workplace: Workplace,
    *,
    root: Path,
    version: str,
    host_compiler: HostCompiler | None = None,
    prefix: tuple[str, ...] = (),
) -> Installed:
    return Installed(
        identity=recipe.identity,
        provider=recipe.provider,
        cuda=recipe.cuda,
        release=recipe.release,
        version=version,
        platform=recipe.platform,
        components=recipe.components,
        folder=str(workplace.final),
        root=str(root),
        size=store.size_of(workplace.scratch),
        archives=recipe.archives,
        prefix=prefix,
        host_compiler=host_compiler,
        found_via=recipe.found_via,
    )
