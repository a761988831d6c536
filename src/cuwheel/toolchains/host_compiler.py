"""A host compiler that this nvcc takes: found on the machine, chosen by the table, asked for its version."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError, NoHostCompilerError, UnavailableError
from cuwheel.facts import versions
from cuwheel.machine import compilers
from cuwheel.support import quoting
from cuwheel.toolchains.toolchain import HostCompiler, Setting

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


def choose_host_compiler(machine: World, toolkit: Toolkit, wanted: str | None = None) -> HostCompiler:
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
        else "install one next to the others:\n" + "\n".join(f"  {each}" for each in install_commands(limit or 0)),
    )


def install_commands(gcc: int) -> Iterator[str]:
    """How each kind of system gets a gcc of that major version."""
    yield from (command.format(gcc=gcc) for command in _COMMANDS)


_COMMANDS = (
    "apt install g++-{gcc}",
    "dnf install gcc-toolset-{gcc}-gcc-c++   and --host-compiler /opt/rh/gcc-toolset-{gcc}/root/usr/bin/g++",
    "conda install -c conda-forge gxx={gcc}",
)


# The variables that Visual Studio's own prompt sets: where cl.exe and link.exe find headers and libraries.

_SCRIPT = "VC\\Auxiliary\\Build\\vcvars64.bat"
_VARIABLE = "CUWHEEL_VCVARS"
_SCRIPT_S = 120.0  # it looks for SDKs all over the disk
_TOOLSET = re.compile(r"(14\.\d+)\.\d+(?:\.\d+)?", re.ASCII)
_LISTS = ("INCLUDE", "LIB", "LIBPATH", "EXTERNAL_INCLUDE")
# What build systems ask for beside: which toolset, which SDK.
_TOLD = re.compile(r"VC\w*|VS\w*|VisualStudio\w*|Windows(?:Sdk|SDK|Lib)\w*|UCRTVersion|UniversalCRTSdkDir", re.ASCII)
# setuptools and torch take the environment as it is, and do not set up another.
_AS_IT_IS = {"DISTUTILS_USE_SDK": "1", "MSSdk": "1"}


def msvc_settings(machine: World, compiler: HostCompiler) -> tuple[Setting, ...]:
    """Those of the installation and the toolset that the chosen cl.exe is of."""
    studio, toolset = _place(compiler.path)
    script = f"{studio}\\{_SCRIPT}"
    if not machine.exists(script):
        raise UnavailableError(
            f"{compiler.path} has no {_SCRIPT} beside it, which says where its headers are",
            hint='repair the workload "Desktop development with C++" in the Visual Studio Installer',
        )
    printed = _printed(machine, script, toolset)
    before = {name.upper(): value for name, value in machine.environ.items()}
    return tuple(_changed(printed, before))


def _place(path: str) -> tuple[str, str]:
    """`C:\\VS` and `14.44` of C:\\VS\\VC\\Tools\\MSVC\\14.44.35207\\bin\\Hostx64\\x64\\cl.exe."""
    parts = PureWindowsPath(path).parts
    for number, part in enumerate(parts):
        if (match := _TOOLSET.fullmatch(part)) and tuple(parts[number - 3 : number]) == ("VC", "Tools", "MSVC"):
            return str(PureWindowsPath(*parts[: number - 3])), match[1]
    raise UnavailableError(f"{path} is not in a folder of Visual Studio", hint="choose another: --host-compiler cl.exe")


def _printed(machine: World, script: str, toolset: str) -> str:
    """By a file: the words of cmd.exe are quoted otherwise than those of any other program.

    And by a variable: it takes the letters in a file for those of the console's code page.
    """
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        batch = Path(folder, "variables.bat")
        call = f'@call "%{_VARIABLE}%" -vcvars_ver={toolset} >nul'
        lines = ("@chcp 65001 >nul", call, "@if errorlevel 1 exit /b 1", "@set", "")
        batch.write_bytes("\r\n".join(lines).encode("ascii"))
        shell = machine.environ.get("ComSpec") or machine.environ.get("COMSPEC") or "cmd.exe"
        try:
            environ = {**machine.environ, _VARIABLE: script}
            return machine.run([shell, "/d", "/c", batch], timeout=_SCRIPT_S, check=True, env=environ).stdout
        except CuwheelError as error:
            raise UnavailableError(
                f"{script} does not set up MSVC {toolset}: {error.message}", hint=f"try it: {quoting.here([script])}"
            ) from error


def _changed(printed: str, before: dict[str, str]) -> Iterator[Setting]:
    for line in printed.splitlines():
        name, _, value = line.partition("=")
        if name.upper() == "PATH":
            known = {each.upper() for each in before.get("PATH", "").split(";")}
            added = [each for each in value.split(";") if each and each.upper() not in known]
            yield Setting(name="PATH", value=";".join(added), how="prepend")
        elif name in _LISTS or (_TOLD.fullmatch(name) and before.get(name.upper()) != value):
            yield Setting(name=name, value=value)
    yield from (Setting(name=name, value=value) for name, value in _AS_IT_IS.items())
