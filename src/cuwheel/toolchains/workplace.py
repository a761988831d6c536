"""Where a toolkit is made: what providers may look at, archives unpacked, and what packages leave out put right."""

from __future__ import annotations

import re
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cuwheel.errors import MalformedError
from cuwheel.facts import versions
from cuwheel.facts.packages import DRIVER_LIBRARY
from cuwheel.facts.tables import tables
from cuwheel.machine.world import World
from cuwheel.support import log, process
from cuwheel.toolchains import archives, store
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import HostCompiler, processors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
        write(target, header.read_text(encoding="utf-8", errors="replace"), cpu)


def nvcc_version(nvcc: Path) -> str:
    """What it says of itself: also the proof that it runs."""
    version = version_in(process.run([nvcc, "--version"], timeout=_VERSION_S).stdout)
    if version is None:
        raise MalformedError(nvcc, "does not say which version it is")
    return version


def version_in(output: str) -> str | None:
    match = _RELEASE.search(output)
    return match[1] if match else None


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
    """That of the packages of a toolkit that is, or is going to be, in `folder`; None where it has none."""
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


# libcuda.so to link with, where there is no driver: every function of cuda.h by name, and nothing behind them.
#
# Written as bytes, not compiled: the linker reads its names and its soname, libcuda.so.1, and nothing ever runs it.

_MACHINES = {"x86_64": 62, "aarch64": 183}
_DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
_RENAMED = re.compile(
    r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PTSZ\((cu\w+)\)|__CUDA_API_PTDS\((cu\w+)\)|(cu\w+))", re.MULTILINE
)
_BASE = 0x1000
_HEADER, _SECTION, _SYMBOL, _PROGRAM = 64, 64, 24, 56
_TEXT = b"\x00" * 16


def processor_of(program: Path) -> str | None:
    """That an ELF program is for; None where that is not known."""
    try:
        with program.open("rb") as file:
            head = file.read(20)
    except OSError:
        return None
    machine = int.from_bytes(head[18:20], "little") if head.startswith(b"\x7fELF") else 0
    return next((cpu for cpu, number in _MACHINES.items() if number == machine), None)


class _Section(NamedTuple):
    name: str
    type: int
    flags: int
    body: bytes
    link: int = 0
    info: int = 0
    align: int = 8
    entry: int = 0


def functions(cuda_h: str) -> tuple[str, ...]:
    """The driver's functions that a header declares, under every name that a compiled file may ask for."""
    names = set(_DECLARED.findall(cuda_h))
    for name, *others in _RENAMED.findall(cuda_h):
        chosen = next((each for each in others if each), "")
        names |= {name, chosen}
        if not others[-1]:  # the per-thread stream variants, which -default-stream per-thread selects
            names |= {f"{chosen}_ptsz", f"{chosen}_ptds"}
    return tuple(sorted(name for name in names if name))


def write(path: Path, cuda_h: str, cpu: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(library(functions(cuda_h), cpu))
    path.chmod(0o755)


def library(names: Iterable[str], cpu: str) -> bytes:
    """A shared library of that soname with these functions."""
    strings = b"\0" + DRIVER_LIBRARY.encode() + b"\0"
    symbols = b"\0" * _SYMBOL
    for name in names:
        # A global function in section 1, at its start.
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, _BASE + _HEADER + 2 * _PROGRAM, len(_TEXT))
        strings += name.encode() + b"\0"
    dynamic = struct.pack("<QQ", 14, 1)  # DT_SONAME, behind the first NUL
    offsets = _offsets([_TEXT, symbols, strings, dynamic])
    for tag, value in ((5, _BASE + offsets[2]), (6, _BASE + offsets[1]), (10, len(strings)), (11, _SYMBOL), (0, 0)):
        dynamic += struct.pack("<QQ", tag, value)  # DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    sections = (
        _Section(".text", 1, 6, _TEXT, align=16),
        _Section(".dynsym", 11, 2, symbols, link=3, info=1, entry=_SYMBOL),
        _Section(".dynstr", 3, 2, strings, align=1),
        _Section(".dynamic", 6, 2, dynamic, link=3, entry=16),
    )
    return _file(sections, _MACHINES[cpu])


def _offsets(bodies: Sequence[bytes]) -> list[int]:
    found, place = [], _HEADER + 2 * _PROGRAM
    for body in bodies:
        found.append(place)
        place += -(-len(body) // 16) * 16
    return found


def _file(sections: tuple[_Section, ...], machine: int) -> bytes:
    names = b"\0" + b"".join(each.name.encode() + b"\0" for each in sections) + b".shstrtab\0"
    everything = (*sections, _Section(".shstrtab", 3, 0, names, align=1))
    offsets = _offsets([each.body for each in everything])
    body = b"".join(each.body.ljust(-(-len(each.body) // 16) * 16, b"\0") for each in everything)
    start = _HEADER + 2 * _PROGRAM
    headers = b"\0" * _SECTION
    name = 1
    for each, offset in zip(everything, offsets, strict=True):
        address = _BASE + offset if each.flags else 0
        shown = (
            name,
            each.type,
            each.flags,
            address,
            offset,
            len(each.body),
            each.link,
            each.info,
            each.align,
            each.entry,
        )
        headers += struct.pack("<IIQQQQIIQQ", *shown)
        name += len(each.name) + 1
    count = len(everything) + 1
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    numbers = (3, machine, 1, 0, _HEADER, start + len(body), 0, _HEADER, _PROGRAM, 2, _SECTION, count, count - 1)
    head = identity + struct.pack("<HHIQQQIHHHHHH", *numbers)
    dynamic_at, dynamic_size = offsets[3], len(sections[3].body)
    loaded = offsets[4]
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, loaded, loaded, _BASE)
    programs += struct.pack(
        "<IIQQQQQQ", 2, 4, dynamic_at, _BASE + dynamic_at, _BASE + dynamic_at, dynamic_size, dynamic_size, 8
    )
    return head + programs + body + headers
