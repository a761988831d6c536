"""`cuwheel record` and `replay` in Python for Windows, under Wine: real cmake.exe and ninja.exe, a build like cargo."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.building.recording import reader, shims
from cuwheel.support import own_c, process
from tests.fixtures import cache
from tests.integration.windows_bench import needs_wine, tool
from tests.wine import windows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.wine, pytest.mark.slow, needs_wine]

_FATAL = "nvcc fatal   : Cannot find compiler 'cl.exe' in PATH"
_PROJECT = """\
cmake_minimum_required(VERSION 3.20)
project(kernels NONE)
foreach(name one two)
  add_custom_command(
    OUTPUT ${name}.obj
    COMMAND "${NVCC}" -c "${CMAKE_SOURCE_DIR}/${name}.cu" -o ${name}.obj "err:bad ${name}" exit:3)
  list(APPEND objects ${name}.obj)
endforeach()
add_custom_target(kernels ALL DEPENDS ${objects})
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """With our programs where cuwheel looks for them, and a toolkit whose path has blanks."""
    with cache.locked("windows-programs"):
        if not shims.shipped_windows_programs():
            shims.make_windows_programs(shims.WINDOWS_SOURCES / own_c.PREBUILT)
    binaries = tmp_path / "Program Files" / "CUDA" / "bin"
    binaries.mkdir(parents=True)
    shutil.copyfile(tool("tool"), binaries / "nvcc.exe")
    (binaries / "nvcc.profile").touch()
    shutil.copyfile(tool("starter"), tmp_path / "starter.exe")
    return tmp_path


def _build_tools() -> Path:
    def make(folder: Path) -> None:
        words = [*cache.pip(), "install", "--quiet", "--target", str(folder), "--platform", "win_amd64"]
        process.run([*words, "--only-binary", ":all:", "--no-deps", "cmake", "ninja"], timeout=600)

    return cache.made("windows-build-tools-1", make)


def _recorded(work: Path, *words: str, options: tuple[str, ...] = (), **variables: str) -> dict[str, Any]:
    done = windows.cuwheel(
        "record", "--json", "-o", windows.named(work / "rec"), *options, "--", *words, cwd=work, env=variables
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == answer["exit_status"] & 0xFF
    return answer


def test_cmake_and_ninja_call_nvcc_by_its_path(work: Path) -> None:
    tools = _build_tools()
    cmake, ninja = (next(tools.rglob(name)) for name in ("cmake.exe", "ninja.exe"))
    (work / "CMakeLists.txt").write_text(_PROJECT)
    for name in ("one.cu", "two.cu"):
        (work / name).touch()
    nvcc = windows.named(work / "Program Files" / "CUDA" / "bin" / "nvcc.exe")
    make = f"-DCMAKE_MAKE_PROGRAM={windows.named(ninja)}"
    process.run(
        ["wine", cmake, "-S", ".", "-B", "build", "-G", "Ninja", make, f"-DNVCC={nvcc}"],
        timeout=300,
        env=windows.environment(),
        cwd=work,
    )
    answer = _recorded(work, windows.named(cmake), "--build", "build")
    assert answer["way"] == "watch"
    assert answer["summary"]["nvcc"] == answer["summary"]["failed"] == 2
    failure = answer["failure"]
    assert failure["status"] == 3
    assert failure["command"].startswith(f'"{nvcc}" -c ')
    assert failure["output"].startswith("bad ")
    assert "cmd.exe" in reader.read_record(work / "rec").calls[0].parent


def test_case_4_nvcc_fails_and_the_build_says_nothing(work: Path) -> None:
    """A crate gives nvcc the script's own streams, cargo catches those: the record has what nvcc said."""
    nvcc = windows.named(work / "Program Files" / "CUDA" / "bin" / "nvcc.exe")
    given = ("--gpu-architecture=sm_89", "--ptx", "src\\affine.cu", f"out:{_FATAL}", "exit:1")
    answer = _recorded(work, windows.named(work / "starter.exe"), "cargo", nvcc, *given, HF_TOKEN="hf-secret-value")  # noqa: S106
    assert answer["exit_status"] == 101
    failure = answer["failure"]
    assert (failure["status"], failure["output"]) == (1, f"{_FATAL}\n")
    assert failure["causes"][0]["id"] == "msvc-not-found"
    said = reader.read_command_output(reader.read_record(work / "rec"))
    assert "# stdout\n" in said.replace("  ", "")
    (work / "cargo.log").write_text(said)
    for what in ("cargo.log", "rec"):  # nvcc's own words are in cargo's `--- stdout`, and in the record
        told = windows.cuwheel("explain", windows.named(work / what), "--json", cwd=work)
        assert json.loads(told.stdout)["causes"][0]["id"] == "msvc-not-found", (what, told.stdout, told.stderr)
    assert "hf-secret-value" not in "".join(path.read_text() for path in (work / "rec").glob("*.json*"))
    again = windows.cuwheel("record", "replay", windows.named(work / "rec") + ":1", cwd=work)
    assert (again.returncode, again.stdout.decode().strip()) == (1, _FATAL), again.stderr
    shown = windows.cuwheel("record", "replay", windows.named(work / "rec"), "--print", "--shell", "cmd", cwd=work)
    assert f'"{nvcc}" --gpu-architecture=sm_89'.encode() in shown.stdout


def test_a_stand_in_leaves_the_environment_as_it_was(work: Path) -> None:
    root = work / "Program Files" / "CUDA"
    path = f"{windows.named(root / 'bin')};C:\\windows\\system32"
    variables = {"CUDA_PATH": windows.named(root), "CUDACXX": windows.named(root / "bin" / "nvcc.exe")}
    answer = _recorded(
        work, windows.named(work / "starter.exe"), "null", "nvcc.exe", "wish:CUDACXX", "err:quiet", "exit:2",
        options=("--way", "path"), WINEPATH=path, **variables,
    )  # fmt: skip
    assert (answer["way"], answer["summary"]["nvcc"]) == ("path", 1)
    record = reader.read_record(work / "rec")
    (call,) = record.calls
    assert call.program == windows.named(root / "bin" / "nvcc.exe")
    assert reader.read_output(record, call) == (f"{variables['CUDACXX']}\n", "quiet\n")
    assert call.changed.keys() <= {"PROMPT"}
    assert not call.unset


def test_calls_at_once_are_kept_apart(work: Path) -> None:
    """Their callers' threads and ends are debug events too: none may wait for another's output."""
    ninja = next(_build_tools().rglob("ninja.exe"))
    nvcc = windows.named(work / "Program Files" / "CUDA" / "bin" / "nvcc.exe")
    rules = [f'rule r\n  command = "{nvcc}" out:$out bytes:200000 out:end-$out\n']
    names = [f"o{number}" for number in range(12)]
    (work / "build.ninja").write_text("".join([*rules, *(f"build {name}: r\n" for name in names)]))
    answer = _recorded(work, windows.named(ninja), "-j6")
    assert (answer["exit_status"], answer["summary"]["nvcc"], answer["summary"]["failed"]) == (0, 12, 0)
    record = reader.read_record(work / "rec")
    printed = [reader.read_output(record, call)[0] for call in record.calls]
    assert sorted(text.split("\n")[0] for text in printed) == sorted(names)
    assert all(text.endswith(f"end-{text.split(chr(10))[0]}\n") for text in printed)
