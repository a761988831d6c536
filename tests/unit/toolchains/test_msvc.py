"""What Visual Studio's prompt sets, taken over for the chosen toolset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuwheel.errors import UnavailableError
from cuwheel.toolchains import toolchain
from cuwheel.toolchains.toolchain import HostCompiler
from tests.unit.machine.fake import FakeMachine

STUDIO = "C:\\Program Files\\Microsoft Visual Studio\\2022\\Build Tools"
CL = f"{STUDIO}\\VC\\Tools\\MSVC\\14.44.35207\\bin\\Hostx64\\x64\\cl.exe"
PRINTED = f"""\
ComSpec=C:\\Windows\\System32\\cmd.exe
INCLUDE={STUDIO}\\include;C:\\Kits\\ucrt
LIB={STUDIO}\\lib
Path={STUDIO}\\bin;C:\\Kits\\bin;C:\\Windows\\System32
SECRET_OF_THE_USER=x
VCToolsVersion=14.44.35207
VSCMD_ARG_TGT_ARCH=x64
WindowsSDKVersion=10.0.26100.0\\
"""


def compiler(path: str = CL) -> HostCompiler:
    return HostCompiler(kind="msvc", version="19.44.35215", path=path, found_via="vswhere")


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    made = FakeMachine(tmp_path, platform="win32")
    made.environ["ComSpec"] = str(tmp_path / "cmd.exe")
    made.outputs["C:\\cmd.exe"] = PRINTED
    made.file(f"{STUDIO}\\VC\\Auxiliary\\Build\\vcvars64.bat")
    return made


def test_lists_and_what_build_systems_ask_for(machine: FakeMachine) -> None:
    found = {each.name: (each.value, each.how) for each in toolchain.msvc_settings(machine.world, compiler())}
    assert found["INCLUDE"] == (f"{STUDIO}\\include;C:\\Kits\\ucrt", "set")
    assert found["PATH"] == (f"{STUDIO}\\bin;C:\\Kits\\bin", "prepend")  # without what was there
    assert found["VCToolsVersion"][0] == "14.44.35207"
    assert found["DISTUTILS_USE_SDK"][0] == "1"
    assert not {"SECRET_OF_THE_USER", "ComSpec"} & set(found)


def test_the_toolset_is_that_of_the_compiler(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, dict[str, str]]] = []
    run = machine.world.run

    def look(command: list[object], **options: Any) -> object:
        seen.append((Path(str(command[-1])).read_bytes().decode("ascii"), options["env"]))
        return run(command, **options)

    monkeypatch.setattr(machine, "_run", look)
    toolchain.msvc_settings(machine.world, compiler())
    ((batch, environ),) = seen
    assert '@call "%CUWHEEL_VCVARS%" -vcvars_ver=14.44 >nul\r\n' in batch
    assert environ["CUWHEEL_VCVARS"] == f"{STUDIO}\\VC\\Auxiliary\\Build\\vcvars64.bat"


def test_no_script(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="says where its headers are"):
        toolchain.msvc_settings(FakeMachine(tmp_path, platform="win32").world, compiler())


def test_a_script_that_fails(machine: FakeMachine) -> None:
    machine.outputs.clear()
    with pytest.raises(UnavailableError, match="does not set up MSVC"):
        toolchain.msvc_settings(machine.world, compiler())


@pytest.mark.parametrize("path", ["C:\\bin\\cl.exe", "cl.exe", "C:\\14.44.1\\cl.exe"])
def test_a_compiler_of_another_kind_of_folder(machine: FakeMachine, path: str) -> None:
    with pytest.raises(UnavailableError, match="not in a folder of Visual Studio"):
        toolchain.msvc_settings(machine.world, compiler(path))
