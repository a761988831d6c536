"""NVIDIA's nvcc for Windows from the index, with a Visual Studio of folders and a cl.exe that says its version."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.wine import windows
from tests.wine.test_verbs import on_c

if TYPE_CHECKING:
    from pathlib import Path

_CL = """#include <stdio.h>
int main(void) { return fprintf(stderr, "Compiler Version 19.%s.35215 for x64\\n", VERSION) < 0; }
"""


@pytest.fixture
def programs(place: Path) -> Path:
    """In place of C:\\Program Files: two toolsets, of which CUDA 13.0 takes the older."""
    studio = place / "Programme" / "Microsoft Visual Studio" / "2022" / "Build Tools"
    (place / "cl.c").write_text(_CL)
    for minor in ("44", "50"):
        folder = studio / "VC" / "Tools" / "MSVC" / f"14.{minor}.35207" / "bin" / "Hostx64" / "x64"
        folder.mkdir(parents=True)
        subprocess.run([windows.COMPILER, f'-DVERSION="{minor}"', "-o", folder / "cl.exe", place / "cl.c"], check=True)
    script = studio / "VC" / "Auxiliary" / "Build" / "vcvars64.bat"
    script.parent.mkdir(parents=True)
    script.write_bytes(
        b'@set "INCLUDE=C:\\headers %1 %2"\r\n@set "LIB=C:\\libraries"\r\n@set "PATH=C:\\added;%PATH%"\r\n'
    )
    return place / "Programme"


def cuwheel(place: Path, programs: Path, *words: str) -> dict[str, Any]:
    """Wine sets the variables of the system anew where a program of Linux starts one: they are set inside."""
    settings = {"ProgramW6432": on_c(programs), "CUWHEEL_CACHE": on_c(place / "cache")}
    start = f"import os, sys; os.environ.update({settings!r}); from cuwheel.cli import main; "
    done = windows.run(["-c", f"{start}sys.exit(main({[*words, '--json']!r}))"], timeout=900)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    found = json.loads(done.stdout.decode("utf-8"))
    assert isinstance(found, dict)
    return found


def test_nvcc_of_the_index_and_the_compiler_that_it_takes(place: Path, programs: Path) -> None:
    found = cuwheel(place, programs, "toolchain", "install", "13.0")
    (toolkit,) = found["toolkits"]
    assert (toolkit["version"], toolkit["platform"]) == ("13.0.88", "windows-x86_64")  # nvcc.exe itself said it
    assert (found["host_compiler"]["kind"], found["host_compiler"]["version"]) == ("msvc", "19.44.35215")
    settings = {each["name"]: each["value"] for each in found["settings"]}
    assert settings["CUDACXX"].endswith("\\bin\\nvcc.exe")
    assert settings["INCLUDE"] == "C:\\headers -vcvars_ver 14.44"  # cmd.exe parts words at "=", and vcvars64.bat knows
    assert (place / "cache").is_dir()


def test_doctor_sees_visual_studio(place: Path, programs: Path) -> None:
    machine = cuwheel(place, programs, "doctor")["machine"]
    assert [each["name"] for each in machine["visual_studios"]] == ["Visual Studio 2022 Build Tools"]
    versions = {each["version"] for each in machine["compilers"] if each["kind"] == "msvc"}
    assert versions == {"19.44.35215", "19.50.35215"}
