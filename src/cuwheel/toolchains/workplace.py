"""Where a toolkit is made: what providers may look at, archives unpacked, and what packages leave out put right."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.facts.tables import tables
from cuwheel.machine.compilers import nvcc_version_in
from cuwheel.machine.world import World
from cuwheel.support import log, process
from cuwheel.toolchains import archives, driver_stub, store
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import HostCompiler, processors_of
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.machine.profile import Attempt
    from cuwheel.toolchains.toolchain import Installed, Recipe


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
        declared = driver_stub.functions(header.read_text(encoding="utf-8", errors="replace"))
        driver_stub.write(target, declared, cpu)


def nvcc_version(program: str | Path) -> str:
    """What nvcc, or another program of its toolkit, says of itself: also the proof that it runs."""
    version = nvcc_version_in(process.run([program, "--version"], timeout=_VERSION_S).stdout)
    if version is None:
        raise MalformedError(program, "does not say which version it is")
    return version


def let_run(root: Path) -> None:
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


STEPS: tuple[Callable[[Path], None], ...] = (let_run, _drop_dangling, _link_folders, _link_libraries)


# A toolkit made from archives: what index, redist and debian share.


class Workplace(Struct, frozen=True, kw_only=True):
    """`scratch` is filled, and then becomes `final`."""

    scratch: Path
    final: Path
    supply: Supply

    def note(self, recipe: Recipe, *, root: Path, version: str, host_compiler: HostCompiler | None = None) -> Installed:
        """What the recipe made here."""
        size = store.size_of(self.scratch)
        return recipe.installed(folder=self.final, root=root, version=version, size=size, host_compiler=host_compiler)


def install_archives(recipe: Recipe, workplace: Workplace, arrange: Callable[[Path], None] | None = None) -> Installed:
    """`arrange`: what else is done to the folder of the toolkit."""
    root = workplace.scratch.resolve() / "root"
    root.mkdir()
    compiler = root.with_name(COMPILER)
    for archive, path in zip(recipe.archives, archives.obtain_archives(recipe.archives, workplace.supply), strict=True):
        if archive.kind == "compiler":
            compiler.mkdir(exist_ok=True)
        archives.unpack(archive, path, compiler if archive.kind == "compiler" else root)
    cpu, target = processors_of(recipe.platform)
    complete_toolkit(root, target or cpu)
    if arrange:
        arrange(root)
    if compiler.is_dir():
        arrange_compiler(compiler, workplace.final / COMPILER)
    log.debug("asking the new nvcc for its version")
    version = nvcc_version(root / "bin" / "nvcc")
    own = compiler_of(recipe, workplace.final)
    return workplace.note(recipe, root=workplace.final / "root", version=version, host_compiler=own)


# A compiler for another processor, of Debian's packages, beside the toolkit.

COMPILER = "compiler"
_RUN_S = 60.0
_DOTTED = re.compile(r"\d+(?:\.\d+)+", re.ASCII)
_SCRIPT = """\
#!/bin/sh
LD_LIBRARY_PATH='{libraries}' exec '{program}' "$@"
"""


def compiler_of(chosen: Recipe | Installed, folder: Path) -> HostCompiler | None:
    """The compiler among the packages of a toolkit that is, or is going to be, in `folder`; None where it has none."""
    names = {each.name: each for each in chosen.archives if each.kind == "compiler"}
    for row in tables().toolchains.cross:
        compiler, library = (names.get(each) for each in row.packages[:2])
        if compiler and library:
            version = _DOTTED.match(compiler.version)
            path = folder / COMPILER / "bin" / f"{row.triplet}-g++"
            return HostCompiler(
                kind="gcc",
                version=version[0] if version else row.gcc,
                path=str(path),
                found_via=f"Debian {row.suite}",
                glibc=library.version.partition("-")[0],
            )
    return None


def arrange_compiler(root: Path, final: Path) -> None:
    """Packages, unpacked into `root`, as programs that find their own libraries and headers in `final`.

    They look for both relative to themselves, but for those of the linker scripts, and the libraries that they need.
    """
    (row,) = {
        each.triplet: each for each in tables().toolchains.cross if (root / "usr" / each.triplet / "lib").is_dir()
    }.values()
    for path in (root / "usr" / row.triplet / "lib").glob("*.so"):
        head = path.read_bytes()[:4096] if path.is_file() and not path.is_symlink() else b""
        if head.startswith(b"/* GNU ld script"):
            path.write_bytes(head.replace(f"/usr/{row.triplet}/lib/".encode(), b""))
    own = f"{row.on}-linux-gnu"
    libraries = ":".join(str(final / each / own) for each in ("usr/lib", "lib") if (root / each / own).is_dir())
    folder = root / "bin"
    folder.mkdir()
    programs = sorted((root / "usr" / "bin").glob(f"{row.triplet}-*"))
    for path in programs:
        plain = re.sub(r"-\d+(?:\.\d+)*$", "", path.name)  # as everybody calls it
        for name in {plain, path.name}:
            script = folder / name
            script.write_text(
                _SCRIPT.format(libraries=libraries, program=final / "usr" / "bin" / path.name), encoding="utf-8"
            )
            script.chmod(0o755)
    compiler = next((each for each in programs if each.name.startswith(f"{row.triplet}-g++")), None)
    if compiler is None:
        raise MalformedError(root, "has no compiler in it")
    process.run([compiler, "-dumpversion"], timeout=_RUN_S)  # that it runs at all
