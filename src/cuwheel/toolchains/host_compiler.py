"""A host compiler that this nvcc takes: found on the machine, chosen by the table, asked for its version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import NoHostCompilerError
from cuwheel.facts import versions
from cuwheel.machine import compilers
from cuwheel.toolchains.toolchain import HostCompiler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.machine.profile import Compiler
    from cuwheel.machine.world import World

_WISHES = ("NVCC_CCBIN", "CUDAHOSTCXX")  # somebody chose: theirs before the newest
_NAMES = {"msvc": "MSVC"}
_BUILD_TOOLS = (
    "install the C++ build tools of Visual Studio, or one of these versions beside the others in its installer: "
    "winget install Microsoft.VisualStudio.2022.BuildTools"
)
_DOTTED = re.compile(r"\d+(?:\.\d+)*")


def choose(machine: World, toolkit: Toolkit, wanted: str | None = None) -> HostCompiler:
    """`wanted`: a program to use and no other. Otherwise what the variables name, else the newest gcc, else clang.

    On Windows that of Visual Studio alone.
    """
    if wanted:
        machine = _with_variable(machine, wanted)
    found = compilers.probe_compilers(machine)
    if wanted:
        found = tuple(each for each in found if _WISHES[0] in each.found_via)
    reasons: list[str] = []
    fitting = []
    for each in found:
        if reason := _unfit(each, toolkit, machine):
            reasons.append(f"{each.path} {reason}")
        else:
            fitting.append(each)
    if not fitting:
        raise _none_fits(machine, toolkit, reasons, wanted)
    best = max(fitting, key=_preference)
    return HostCompiler(kind=best.kind, version=best.version, path=best.path, found_via=", ".join(best.found_via))


def _with_variable(machine: World, program: str) -> World:
    from msgspec.structs import replace  # noqa: PLC0415 - a rare wish

    return replace(machine, environ={**machine.environ, _WISHES[0]: program}, trail=machine.trail)


def _preference(compiler: Compiler) -> tuple[bool, bool, tuple[int, ...]]:
    wished = any(name in compiler.found_via for name in _WISHES)
    return wished, compiler.kind == "gcc", versions.key(compiler.version)


def _unfit(compiler: Compiler, toolkit: Toolkit, machine: World) -> str:
    limits = toolkit.host_compilers
    if (compiler.kind == "msvc") != (machine.platform == "win32"):
        return f"is {compiler.kind}, which nvcc does not take on this system"
    if not (accepted := limits.accepted(compiler.kind)):
        return f"is {compiler.kind}, whose supported versions are not known"
    if limits.refusal(compiler.kind, compiler.version):
        name = _NAMES.get(compiler.kind, compiler.kind)
        return f"is {name} {compiler.version}, but CUDA {toolkit.version} accepts {accepted}"
    if compiler.kind == "msvc":
        return ""  # its version was asked of the program itself
    if "++" not in Path(compiler.path).name:
        return "has no C++ compiler next to it"
    version = machine.output([compiler.path, "-dumpversion"], "host compiler") or ""
    match = _DOTTED.match(version)
    if not match or versions.major(match[0]) != versions.major(compiler.version):
        return f"reports {version.strip() or 'nothing'} when asked again"
    return ""


def _none_fits(machine: World, toolkit: Toolkit, reasons: list[str], wanted: str | None) -> NoHostCompilerError:
    listed = "".join(f"\n  - {each}" for each in reasons) or "\n  - no compiler was found"
    windows = machine.platform == "win32"
    limit = toolkit.host_compilers.gcc_max
    accepted = f"MSVC {toolkit.host_compilers.accepted('msvc')}" if windows else f"gcc up to {limit}"
    what = f"{wanted} is not a compiler that" if wanted else "no host compiler was found that"
    return NoHostCompilerError(
        f"{what} nvcc {toolkit.version} accepts ({accepted}):{listed}",
        hint=_BUILD_TOOLS
        if windows
        else "install one next to the others:\n" + "\n".join(f"  {each}" for each in commands(limit or 0)),
    )


def commands(gcc: int) -> Iterator[str]:
    """How each kind of system gets a gcc of that major version."""
    yield from (command.format(gcc=gcc) for command in _COMMANDS)


_COMMANDS = (
    "apt install g++-{gcc}",
    "dnf install gcc-toolset-{gcc}-gcc-c++   and --host-compiler /opt/rh/gcc-toolset-{gcc}/root/usr/bin/g++",
    "conda install -c conda-forge gxx={gcc}",
)
