"""A Windows machine in a folder: Visual Studio, several toolkits, NVML and nvidia-smi."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cuwheel.machine import compilers, gpu, system
from tests.unit.machine.fake import FakeMachine

if TYPE_CHECKING:
    from pathlib import Path

CUDA = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA"
VSWHERE = "C:\\Program Files (x86)\\Microsoft Visual Studio\\Installer\\vswhere.exe"
STUDIO = "C:\\Program Files\\Microsoft Visual Studio\\2022\\BuildTools"
NEWER = "C:\\Program Files\\Microsoft Visual Studio\\18\\Community"
CL = "Microsoft (R) C/C++ Optimizing Compiler Version {0} for x64\nCopyright (C) Microsoft Corporation.\n"


def compiler(studio: str, toolset: str, host: str = "Hostx64\\x64") -> str:
    return f"{studio}\\VC\\Tools\\MSVC\\{toolset}\\bin\\{host}\\cl.exe"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    made = FakeMachine(tmp_path, platform="win32")
    made.program(compiler(STUDIO, "14.44.35207"), CL.format("19.44.35215"))
    made.program(compiler(STUDIO, "14.29.30133"), CL.format("19.29.30159"))
    made.program(compiler(STUDIO, "14.44.35207", "Hostx64\\x86"), CL.format("19.44.35215"))
    for cuda in ("12.8", "13.0"):
        made.file(f"{STUDIO}\\MSBuild\\Microsoft\\VC\\v170\\BuildCustomizations\\CUDA {cuda}.props")
    return made


def with_vswhere(machine: FakeMachine, *rows: dict[str, str], text: str = "") -> FakeMachine:
    machine.program(VSWHERE, text or json.dumps(rows))
    return machine


ROWS = (
    {
        "installationPath": STUDIO,
        "installationVersion": "17.14.36401.2",
        "displayName": "Visual Studio Build Tools 2022",
    },
    {"installationPath": NEWER, "installationVersion": "18.0.1", "displayName": "Visual Studio Community 2026"},
)


class TestVisualStudio:
    def test_what_vswhere_says(self, machine: FakeMachine) -> None:
        newer, older = compilers.probe_visual_studios(with_vswhere(machine, *ROWS).world)
        assert (newer.name, newer.cuda) == ("Visual Studio Community 2026", ())
        assert (older.path, older.version, older.found_via) == (STUDIO, "17.14.36401.2", "vswhere")
        assert older.cuda == ("12.8", "13.0")

    @pytest.mark.parametrize("text", ["", "not JSON", "[1]", "{}"])
    def test_without_its_answer_the_folders_tell(self, machine: FakeMachine, text: str) -> None:
        (found,) = compilers.probe_visual_studios(with_vswhere(machine, text=text).world)
        assert (found.name, found.path, found.cuda) == ("Visual Studio 2022 BuildTools", STUDIO, ("12.8", "13.0"))

    def test_no_vswhere(self, machine: FakeMachine) -> None:
        assert [each.path for each in compilers.probe_visual_studios(machine.world)] == [STUDIO]

    def test_on_linux_nobody_looks(self, tmp_path: Path) -> None:
        assert compilers.probe_visual_studios(FakeMachine(tmp_path).world) == ()


class TestCompilers:
    def test_every_toolset_and_no_compiler_for_32_bits(self, machine: FakeMachine) -> None:
        found = compilers.probe_compilers(with_vswhere(machine, ROWS[0]).world)
        assert [(each.kind, each.version, each.path) for each in found] == [
            ("msvc", "19.44.35215", compiler(STUDIO, "14.44.35207")),
            ("msvc", "19.29.30159", compiler(STUDIO, "14.29.30133")),
        ]
        assert {each.found_via for each in found} == {("Visual Studio Build Tools 2022",)}

    def test_the_one_on_path_is_one_of_them(self, machine: FakeMachine) -> None:
        machine.environ["PATH"] += ";" + compiler(STUDIO, "14.29.30133").removesuffix("\\cl.exe")
        found = {each.version: each.found_via for each in compilers.probe_compilers(machine.world)}
        assert found["19.29.30159"] == ("PATH: cl.exe", "Visual Studio 2022 BuildTools")

    def test_one_that_does_not_run_is_told_by_its_folder(self, machine: FakeMachine) -> None:
        machine.outputs.clear()
        assert [each.version for each in compilers.probe_compilers(machine.world)] == ["19.44.35207", "19.29.30133"]

    def test_ccbin_may_be_a_folder(self, machine: FakeMachine) -> None:
        machine.environ["NVCC_CCBIN"] = compiler(STUDIO, "14.29.30133").removesuffix("\\cl.exe")
        found = {each.version: each.found_via for each in compilers.probe_compilers(machine.world)}
        assert "NVCC_CCBIN" in found["19.29.30159"]


class TestToolkits:
    def test_five_of_them(self, machine: FakeMachine) -> None:
        for minor, full in (("12.1", "12.1.105"), ("12.8", "12.8.93"), ("13.0", "13.0.88")):
            machine.toolkit(f"{CUDA}\\v{minor}", full)
            machine.environ[f"CUDA_PATH_V{minor.replace('.', '_')}"] = f"{CUDA}\\v{minor}"
        machine.environ["CUDA_PATH"] = f"{CUDA}\\v13.0"
        machine.environ["PATH"] += f";{CUDA}\\v12.1\\bin;{CUDA}\\v13.0\\bin"
        found = {each.version: each for each in compilers.probe_toolkits(machine.world, ())}
        assert found["12.1.105"].found_via == ("PATH", "CUDA_PATH_V12_1", f"{CUDA}/v*")
        assert found["12.8.93"].found_via == ("CUDA_PATH_V12_8", f"{CUDA}/v*")
        assert found["13.0.88"].found_via == ("PATH, shadowed", "CUDA_PATH", "CUDA_PATH_V13_0", f"{CUDA}/v*")
        assert found["13.0.88"].nvcc == f"{CUDA}\\v13.0\\bin\\nvcc.exe"
        named = [each.name for each in system.probe_variables(machine.world)]
        assert named == ["CUDA_PATH", "CUDA_PATH_V12_1", "CUDA_PATH_V12_8", "CUDA_PATH_V13_0"]

    def test_a_variable_that_leads_nowhere(self, machine: FakeMachine) -> None:
        machine.environ["CUDA_PATH_V11_8"] = f"{CUDA}\\v11.8"
        world = machine.world
        assert compilers.probe_toolkits(world, ()) == ()
        assert any("CUDA_PATH_V11_8" in each.outcome for each in world.trail)

    def test_program_files_elsewhere(self, machine: FakeMachine) -> None:
        machine.environ["ProgramW6432"] = "C:\\Programme"
        machine.toolkit("C:\\Programme\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.8", "12.8.93")
        assert [each.version for each in compilers.probe_toolkits(machine.world, ())] == ["12.8.93"]


class TestDriver:
    def test_nvml_answers(self, machine: FakeMachine) -> None:
        machine.nvml = {"state": "ok", "driver": "581.80", "cuda": "13.0", "gpus": [["RTX 5060 Ti", "12.0", 16 << 30]]}
        machine.file("C:\\Windows\\System32\\nvcuda.dll")
        (found,), driver = gpu.probe_gpus(machine.world)
        assert (str(found.capability), driver.version, driver.cuda) == ("12.0", "581.80", "13.0")
        assert driver.libcuda == "C:\\Windows\\System32\\nvcuda.dll"

    def test_nvidia_smi_where_nvml_does_not(self, machine: FakeMachine) -> None:
        printed = "NVIDIA GeForce RTX 5060 Ti, 12.0, 16311, 581.80\nNVIDIA GeForce RTX 4090, [N/A], [N/A], 581.80\n"
        machine.program("C:\\Windows\\System32\\nvidia-smi.exe", printed)
        found, driver = gpu.probe_gpus(machine.world)
        assert [(str(each.capability), each.memory) for each in found] == [("12.0", 16311 << 20), ("8.9", None)]
        assert (driver.version, driver.cuda, driver.found_via) == ("581.80", "13.0", "nvidia-smi")

    @pytest.mark.parametrize("printed", ["", "NVIDIA-SMI has failed\n", "a, b\n"])
    def test_nvidia_smi_says_nothing_of_use(self, machine: FakeMachine, printed: str) -> None:
        machine.program("C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvidia-smi.exe", printed)
        found, driver = gpu.probe_gpus(machine.world)
        assert (found, driver.version) == ((), None)

    def test_nothing_of_linux_is_asked(self, machine: FakeMachine) -> None:
        world = machine.world
        gpu.probe_gpus(world)
        system.probe_system(world)
        assert not any(each.tried.startswith(("/proc", "/sys", "/usr")) for each in world.trail)


def test_the_system(machine: FakeMachine) -> None:
    found = system.probe_system(machine.world)
    assert found.distribution
    assert (found.os.value, found.distribution.value) == ("Windows", "Windows 11 (10.0.26100)")
    assert (found.glibc, found.glibcxx, found.wsl, found.container) == (None, None, None, None)


def test_libraries_are_found_by_path(machine: FakeMachine) -> None:
    machine.file(f"{CUDA}\\v13.0\\bin\\cudart64_13.dll")
    machine.environ["PATH"] += f";{CUDA}\\v13.0\\bin"
    (found,) = system.probe_library_folders(machine.world, ())
    assert (found.path, found.libraries, found.found_via) == (f"{CUDA}\\v13.0\\bin", ("cudart64_13.dll",), "PATH")
