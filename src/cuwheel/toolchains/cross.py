"""For another processor, without root: a compiler of this machine or Debian's, and Debian's Python to try wheels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import NoHostCompilerError, UnavailableError
from cuwheel.facts.tables import tables
from cuwheel.machine.profile import Attempt
from cuwheel.toolchains import archives
from cuwheel.toolchains.providers import debian
from cuwheel.toolchains.toolchain import HostCompiler
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.facts.rows.toolchains import CrossCompiler, EmulatedPython
    from cuwheel.machine.world import World
    from cuwheel.toolchains.toolchain import Archive, Installed, Recipe, Wanted
    from cuwheel.toolchains.workplace import Surroundings
    from cuwheel_core.facts.rows.toolkits import Toolkit

_WISHES = ("NVCC_CCBIN", "CUDAHOSTCXX", "CXX")
_DOTTED = re.compile(r"\d+(?:\.\d+)+", re.ASCII)
_GLIBC = re.compile(r"^#define (__GLIBC__|__GLIBC_MINOR__) (\d+)$", re.MULTILINE | re.ASCII)


def rows_for(cpu: str, target: str) -> tuple[CrossCompiler, ...]:
    """Compilers that run on one processor and compile for the other, the best first."""
    rows = tuple(row for row in tables().toolchains.cross if (row.on, row.target) == (cpu, target))
    if not rows:
        known = ", ".join(dict.fromkeys(f"{row.target} on {row.on}" for row in tables().toolchains.cross))
        raise UnavailableError(
            f"compiling for {target} on {cpu} is not supported, only for {known}",
            hint=f"build on a machine with a processor of the kind {target}",
        )
    return rows


def reachable_glibc(system: str, cpu: str, target: str, asked: str | None) -> str | None:
    """The glibc to link with for a result that may need the one `asked` for at most: as low as there are compilers.

    What is linked with a newer one often needs an older: who asked looks at the result.
    """
    if system == "windows":
        raise UnavailableError(f"compiling for {target} on Windows is not supported", hint="build on Linux, or in WSL2")
    lowest = min((row.glibc for row in rows_for(cpu, target)), key=versions.key)
    return asked and max(asked, lowest, key=versions.key)


# Of this machine.


def find_compiler(machine: World, wanted: Wanted, program: str | None, reasons: list[str]) -> HostCompiler | None:
    """The one that is asked for, that a variable names, or that is on PATH; why the others will not do."""
    assert wanted.target  # noqa: S101 - who asks has one
    triplet = rows_for(wanted.cpu, wanted.target)[0].triplet
    for path, way in _candidates(machine, triplet, program, wanted.toolkit):
        found = _examined(machine, path, way)
        if isinstance(found, str):
            reasons.append(f"{path} {found}")
        elif reason := _unfit(machine, found, wanted):
            # A variable may name the compiler of this machine's own processor.
            reasons += [f"{path} {reason}"] if program or way == "PATH" else []
        else:
            return found
    return None


def choose_compiler(machine: World, wanted: Wanted, program: str | None) -> HostCompiler:
    reasons: list[str] = []
    found = find_compiler(machine, wanted, program, reasons)
    if found is None:
        raise _none_fits(wanted, reasons)
    return found


def _candidates(machine: World, triplet: str, program: str | None, toolkit: Toolkit) -> Iterator[tuple[str, str]]:
    if program:
        yield program, "--host-compiler"
        return
    for name in _WISHES:
        if value := machine.environ.get(name):
            yield value, name
    newest = toolkit.host_compilers.gcc_max or 0
    conda = triplet.replace("-linux", "-conda-linux")
    for name in (f"{triplet}-g++", *(f"{triplet}-g++-{major}" for major in range(newest, 6, -1)), f"{conda}-g++"):
        yield from ((str(path), "PATH") for path in machine.which_all(name))


def _examined(machine: World, path: str, way: str) -> HostCompiler | str:
    """What a program says of itself, or why it is none that can be used."""
    version = _DOTTED.search(machine.output([path, "-dumpfullversion", "-dumpversion"], "cross compiler") or "")
    if not version:
        return "does not say its version"
    kind = "clang" if "clang" in Path(path).name else "gcc"
    defined = machine.output([path, "-x", "c", "-include", "features.h", "-dM", "-E", "/dev/null"], "its C library")
    parts = dict(_GLIBC.findall(defined or ""))
    glibc = f"{parts['__GLIBC__']}.{parts['__GLIBC_MINOR__']}" if len(parts) == 2 else ""  # noqa: PLR2004
    return HostCompiler(kind=kind, version=version[0], path=path, found_via=way, glibc=glibc)


def _unfit(machine: World, compiler: HostCompiler, wanted: Wanted) -> str:
    whose = (machine.output([compiler.path, "-dumpmachine"], "cross compiler") or "").strip()
    if whose.partition("-")[0] != wanted.target:
        return f"compiles for {whose or 'nobody knows what'}, not for {wanted.target}"
    if not compiler.glibc:
        return f"has no C library for {wanted.target}"
    return _refused(compiler, wanted)


def _refused(compiler: HostCompiler, wanted: Wanted) -> str:
    """Why a compiler will not do, by the versions alone: its own, and of the C library that it links with."""
    limits = wanted.toolkit.host_compilers
    if limits.refusal(compiler.kind, compiler.version):
        accepted = limits.accepted(compiler.kind)
        return f"is {compiler.kind} {compiler.version}, but CUDA {wanted.cuda} accepts {accepted}"
    if wanted.glibc and versions.key(compiler.glibc) > versions.key(wanted.glibc):
        return f"links with glibc {compiler.glibc}, and the result may need {wanted.glibc} at most"
    return ""


# Debian's.


def packages_for(wanted: Wanted, around: Surroundings, reasons: list[str]) -> tuple[Archive, ...]:
    """The packages of the first suite whose compiler runs here and does what is wanted."""
    assert wanted.target  # noqa: S101 - who asks has one
    here = around.machine.libc_version
    for row in rows_for(wanted.cpu, wanted.target):
        name = f"{row.packages[0]} of Debian {row.suite}"
        compiler = HostCompiler(kind="gcc", version=row.gcc, path=name, found_via="", glibc=row.glibc)
        if reason := _refused(compiler, wanted):
            reasons.append(f"{name} {reason}")
        elif here and versions.key(row.glibc) > versions.key(here):
            reasons.append(f"{name} runs on glibc {row.glibc} and later, and this machine has {here}")
        else:
            try:
                found = debian.packages(row, wanted.cpu, around, offline=wanted.offline, sources=wanted.apt_sources)
            except CuwheelError as error:
                reasons.append(f"{name}: {error.message.splitlines()[0]}")
                continue
            if lacking := set(row.packages) - {each.name for each in found}:
                reasons.append(f"Debian {row.suite} has no {', '.join(sorted(lacking))}")
                continue
            around.machine.trail.append(Attempt(fact="cross compiler", tried=name, outcome="can be had"))
            return tuple(replace(each, kind="compiler") for each in found)
    raise _none_fits(wanted, reasons)


def _none_fits(wanted: Wanted, reasons: Sequence[str]) -> NoHostCompilerError:
    assert wanted.target  # noqa: S101 - who asks has one
    triplet = rows_for(wanted.cpu, wanted.target)[0].triplet
    return NoHostCompilerError(
        (
            f"no compiler for {wanted.target} was found that nvcc {wanted.cuda} accepts:",
            *(f"  - {each}" for each in reasons),
        ),
        hint=(
            "install one, or name it with --host-compiler PROGRAM:",
            f"  apt install g++-{triplet}",
            f"  conda install -c conda-forge gxx_linux-{wanted.target}",
        ),
    )


def complete(recipe: Recipe, wanted: Wanted, around: Surroundings, program: str | None) -> Recipe:
    """Adds the packages of a compiler to the recipe, where this machine has none that will do."""
    reasons: list[str] = []
    if find_compiler(around.machine, wanted, program, reasons):
        return recipe
    if program:
        raise _none_fits(wanted, reasons)
    return replace(recipe, archives=(*recipe.archives, *packages_for(wanted, around, reasons)))


# A Python of another processor, for an emulator.


def python_root(row: EmulatedPython, around: Surroundings, *, offline: bool = False) -> Path:
    """A root file system with that Python, unpacked in the cache."""

    def fill(root: Path) -> None:
        found = debian.packages(row, row.cpu, around, offline=offline)
        if lacking := set(row.packages) - {each.name for each in found}:
            raise UnavailableError(f"Debian {row.suite} has no {', '.join(sorted(lacking))}")
        supply = archives.Supply(store=around.store, offline=offline)
        for each, path in zip(found, archives.obtain_archives(found, supply), strict=True):
            archives.unpack(replace(each, kind="compiler"), path, root)
        for name in ("bin", "lib"):  # of suites whose packages have all below usr
            if not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")

    return around.store.make_root(f"python{row.python}-{row.cpu}", fill)


def serves(toolkit: Installed, wanted: Wanted) -> bool:
    """Whether the compiler of an installed toolkit is one for what is wanted; one of the machine is looked for anew."""
    own = toolkit.host_compiler
    return own is None or not _refused(own, wanted)
