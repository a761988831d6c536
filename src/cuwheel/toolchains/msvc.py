"""The variables that Visual Studio's own prompt sets: where cl.exe and link.exe find headers and libraries."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError, UnavailableError
from cuwheel.support import quoting
from cuwheel.toolchains.toolchain import Setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.machine.world import World
    from cuwheel.toolchains.toolchain import HostCompiler

_SCRIPT = "VC\\Auxiliary\\Build\\vcvars64.bat"
_VARIABLE = "CUWHEEL_VCVARS"
_SCRIPT_S = 120.0  # it looks for SDKs all over the disk
_TOOLSET = re.compile(r"(14\.\d+)\.\d+(?:\.\d+)?", re.ASCII)
_LISTS = ("INCLUDE", "LIB", "LIBPATH", "EXTERNAL_INCLUDE")
# What build systems ask for beside: which toolset, which SDK.
_TOLD = re.compile(r"VC\w*|VS\w*|VisualStudio\w*|Windows(?:Sdk|SDK|Lib)\w*|UCRTVersion|UniversalCRTSdkDir", re.ASCII)
# setuptools and torch take the environment as it is, and do not set up another.
_AS_IT_IS = {"DISTUTILS_USE_SDK": "1", "MSSdk": "1"}


def settings(machine: World, compiler: HostCompiler) -> tuple[Setting, ...]:
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
