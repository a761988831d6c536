"""What a build for another processor is told: by variables, CMake's file, and Python's own account of itself."""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.building import crossing, jobs
from cuwheel.building.tables import GateTable, RepairTable, Table
from cuwheel.errors import UsageError
from cuwheel.machine import fleet
from cuwheel.machine.fleet import Machine
from cuwheel.toolchains.toolchain import HostCompiler, Toolchain, settings_for
from tests.fixtures import systems
from tests.unit.building import jobs_world

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = systems.posix("builds nothing for other processors: nvcc's parts for arm64 are Linux's")
PREFIX = "/store/compiler/bin/aarch64-linux-gnu-"


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "versions_on_path", lambda *_: {})


def toolchain() -> Toolchain:
    native = jobs_world.toolchain()
    kit = replace(native.toolkit, platform="linux-x86_64-aarch64")
    compiler = HostCompiler(kind="gcc", version="12.2.0", path=f"{PREFIX}g++", found_via="Debian", glibc="2.36")
    return Toolchain(toolkit=kit, host_compiler=compiler, settings=settings_for(kit, compiler))


def test_nothing_changes_for_this_processor(tmp_path: Path) -> None:
    assert dict(crossing.variables(jobs_world.toolchain(), tmp_path)) == {}


def test_every_tool_is_the_other_processors(tmp_path: Path) -> None:
    job = jobs_world.job(tmp_path, made_by=toolchain())
    assert {name: job.environ[name] for name in ("CC", "CXX", "AR", "STRIP", "NVCC_CCBIN", "CUDAHOSTCXX")} == {
        "CC": f"{PREFIX}gcc",
        "CXX": f"{PREFIX}g++",
        "AR": f"{PREFIX}ar",
        "STRIP": f"{PREFIX}strip",
        "NVCC_CCBIN": f"{PREFIX}g++",
        "CUDAHOSTCXX": f"{PREFIX}g++",
    }
    assert job.environ["_PYTHON_HOST_PLATFORM"] == "linux-aarch64"
    assert "/store/compiler/bin" in job.environ["PATH"].split(":")
    assert not dict(job.links).keys() & {"g++", "gcc"}  # what runs during the build is compiled for this machine
    native = jobs_world.job(tmp_path)
    assert job.folder != native.folder
    assert job.key != native.key


def write(tmp_path: Path) -> Path:
    job = jobs_world.job(tmp_path, made_by=toolchain())
    headers = tmp_path / "usr" / "include" / "python3.11"
    own = tmp_path / "usr" / "include" / "x86_64-linux-gnu" / "python3.11"
    own.mkdir(parents=True)
    (own / "pyconfig.h").write_text("#define HERE 1\n")
    (job.folder / "venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    crossing.write_files(job, job.folder / "venv" / "bin" / "python", headers)
    return job.folder


def test_cmake_is_led_to_the_toolkit_and_to_no_library_of_this_machine(tmp_path: Path) -> None:
    folder = write(tmp_path)
    text = (folder / "cross" / "toolchain.cmake").read_text()
    assert "set(CMAKE_SYSTEM_PROCESSOR aarch64)" in text
    assert f'set(CMAKE_CUDA_HOST_COMPILER "{PREFIX}g++")' in text
    assert "set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)" in text
    headers = folder / "cross" / "include" / "aarch64-linux-gnu" / "python3.11" / "pyconfig.h"
    assert headers.read_text() == "#define HERE 1\n"


def test_cmake_is_told_how_modules_end(tmp_path: Path) -> None:
    """By the program that it asks, and asks in time."""
    program = write(tmp_path) / "cross" / "aarch64-linux-gnu-python3.11-config"
    assert os.access(program, os.X_OK)
    assert f'_CONFIG "{program}")' in (program.parent / "toolchain.cmake").read_text()
    text = program.read_text()
    assert f"includes) echo -I{tmp_path}/usr/include/python3.11 ;;" in text
    assert "configdir) echo /usr/lib/aarch64-linux-gnu ;;" in text


def test_one_build_is_not_for_servers_and_jetson_while_cuda_is_two() -> None:
    orin, server = fleet.machines_named(["orin", "gh200"])
    assert crossing.l4t_wanted("12.6", [orin]) is True
    assert crossing.l4t_wanted("12.6", [server]) is False
    assert crossing.l4t_wanted("12.6", []) is None
    assert crossing.l4t_wanted("13.0", [orin, server]) is None
    with pytest.raises(
        UsageError, match=r"one build serves either Jetson \(L4T: orin\) or servers \(gh200\)"
    ) as raised:
        crossing.l4t_wanted("12.6", [server, orin])
    assert "13.2" in (raised.value.hint or "")


def test_an_older_glibc_than_there_is_a_compiler_for_is_told_before_it_compiles(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        crossing.tell_glibc(toolchain(), "2.36")
        crossing.tell_glibc(toolchain(), None)
        assert not caplog.messages
        crossing.tell_glibc(toolchain(), "2.27")
    assert "glibc 2.27 is asked for, and the oldest to link with here is 2.36" in caplog.text


def test_python_says_the_other_processors_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    (lead,) = (folder / "venv" / "lib" / "python3.11" / "site-packages").glob("*.pth")
    assert lead.read_text().strip() == str(folder / "cross")
    flags, multiarch = getattr(sys, "abiflags", ""), getattr(sys.implementation, "_multiarch", "")
    native = types.ModuleType(f"_sysconfigdata_{flags}_{sys.platform}_{multiarch}")
    native.build_time_vars = {  # type: ignore[attr-defined]
        "EXT_SUFFIX": ".cpython-311-x86_64-linux-gnu.so",
        "SOABI": "cpython-311-x86_64-linux-gnu",
        "CC": "gcc -pthread",
        "CFLAGS": "-O2 -m64 -fcf-protection -march=x86-64-v2 -fwrapv",
        "SIZEOF_LONG": 8,
    }
    monkeypatch.setitem(sys.modules, native.__name__, native)
    said: dict[str, Any] = {}
    exec((folder / "cross" / "_sysconfigdata_cuwheel.py").read_text(), said)  # noqa: S102 - as Python itself does
    variables = said["build_time_vars"]
    assert variables["EXT_SUFFIX"] == ".cpython-311-aarch64-linux-gnu.so"
    assert variables["CC"] == f"{PREFIX}gcc"
    assert variables["LDSHARED"] == f"{PREFIX}gcc -shared"
    assert variables["CFLAGS"] == "-O2 -fwrapv"
    assert variables["SIZEOF_LONG"] == 8


@pytest.mark.parametrize(
    ("table", "glibcs", "wanted"),
    [
        (Table(), (), None),
        (Table(gate=GateTable(glibc="2.34")), (), "2.34"),
        (Table(gate=GateTable(glibc="2.34")), ("2.31", "2.39"), "2.31"),
        (Table(repair=RepairTable(policy="manylinux_2_28")), ("2.31",), "2.28"),
    ],
)
def test_the_oldest_glibc_of_all_counts(table: Table, glibcs: tuple[str, ...], wanted: str | None) -> None:
    machines = [Machine(name=each, capability=None, glibc=each) for each in glibcs]
    assert crossing.glibc_wanted(table, machines) == wanted
