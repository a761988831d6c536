from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.machine import compilers, gpu, python_environment, system
from cuwheel_core.errors import UnreadableError
from tests.fixtures import systems
from tests.unit.machine.fake import FakeMachine

if TYPE_CHECKING:
    from pathlib import Path

GCC = "g++ (Debian {0}-14) {0}\nCopyright (C) 2022 Free Software Foundation, Inc.\n"
CLANG = "Debian clang version {0}\nTarget: x86_64-pc-linux-gnu\n"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@systems.NO_MODES
def test_folders_that_may_not_be_searched_have_nothing(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user left them on PATH and in CUDA_HOME: `su` keeps both."""
    machine.toolkit("/root/cuda", "13.0.88")
    machine.program("/usr/bin/g++", GCC.format("12.2.0"))
    machine.environ |= {"PATH": "/root/cuda/bin:/usr/bin", "CUDA_HOME": "/root/cuda", "CUDACXX": "/root/cuda/bin/nvcc"}
    machine.environ["NVCC_CCBIN"] = "/root/cuda/bin"
    stat = os.stat

    def refused(path: str | Path, **more: Any) -> os.stat_result:
        if str(path).startswith(f"{machine.root}/root/"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", refused)
    assert machine.world.which_all("nvcc") == []
    assert compilers.probe_toolkits(machine.world, ()) == ()
    assert [each.path for each in compilers.probe_compilers(machine.world)] == ["/usr/bin/g++"]


class TestSystem:
    def test_a_debian_server(self, machine: FakeMachine) -> None:
        machine.file("/etc/os-release", 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
        machine.file(
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            b"\x7fELF GLIBCXX_3.4\0GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0CXXABI_1.3\0",
        )
        found = system.probe_system(machine.world)
        assert found.distribution
        assert found.distribution.value == "Debian GNU/Linux 12 (bookworm)"
        assert found.glibcxx
        assert found.glibcxx.value == "3.4.30"  # not 3.4.9, which sorts later as text
        assert found.glibcxx.found_via == "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
        assert found.glibc
        assert found.glibc.value == "2.36"
        assert (found.l4t, found.wsl, found.container) == (None, None, None)

    def test_a_jetson(self, tmp_path: Path) -> None:
        machine = FakeMachine(tmp_path, cpu="aarch64")
        machine.file("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n")
        machine.file(
            "/var/lib/dpkg/status",
            "Package: other\nVersion: 1\n\nPackage: nvidia-jetpack\nStatus: ok\nVersion: 6.2+b77\n\nPackage: z\n",
        )
        found = system.probe_system(machine.world)
        assert found.l4t
        assert found.l4t.value == "36.4.3"
        assert found.jetpack
        assert found.jetpack.value == "6.2"

    @pytest.mark.parametrize(
        ("release", "expected"),
        [
            ("5.15.167.4-microsoft-standard-WSL2", "2"),
            ("4.4.0-19041-Microsoft", "1"),
            ("6.1.0-18-amd64", None),
        ],
    )
    def test_wsl(self, machine: FakeMachine, release: str, expected: str | None) -> None:
        machine.file("/proc/sys/kernel/osrelease", release)
        found = system.probe_system(machine.world).wsl
        assert (found.value if found else None) == expected

    @pytest.mark.parametrize(
        ("path", "text", "expected"),
        [
            ("/.dockerenv", "", "docker"),
            ("/run/.containerenv", "", "podman"),
            ("/proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice", "kubepods"),
        ],
    )
    def test_containers(self, machine: FakeMachine, path: str, text: str, expected: str) -> None:
        machine.file(path, text)
        found = system.probe_system(machine.world).container
        assert found
        assert found.value == expected

    def test_a_machine_that_shows_nothing(self, tmp_path: Path) -> None:
        machine = FakeMachine(tmp_path, glibc=None)
        found = system.probe_system(machine.world)
        assert found.glibc is None
        assert found.distribution is None


class TestGpus:
    def test_nvml_answers(self, machine: FakeMachine) -> None:
        machine.nvml = {
            "state": "ok",
            "driver": "580.95.05",
            "cuda": "13.0",
            "gpus": [["NVIDIA H200", "9.0", 150754820096]],
        }
        machine.file("/dev/nvidia0")
        machine.file("/dev/nvidiactl")
        machine.file("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
        gpus, driver = gpu.probe_gpus(machine.world)
        assert [(each.name, each.capability, each.memory) for each in gpus] == [("NVIDIA H200", "9.0", 150754820096)]
        assert (driver.version, driver.cuda, driver.device_nodes) == ("580.95.05", "13.0", ("/dev/nvidia0",))
        assert driver.libcuda == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"

    def test_a_hung_driver_still_shows_what_the_kernel_knows(self, machine: FakeMachine) -> None:
        machine.nvml = "hangs"
        machine.file(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\nGCC version: 12\n",
        )
        machine.file("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA L40S\nIRQ:   \t\t 120\n")
        gpus, driver = gpu.probe_gpus(machine.world)
        assert driver.nvml == "timeout"
        assert (driver.version, driver.cuda) == ("570.133.20", "12.8")
        assert [(each.name, each.capability) for each in gpus] == [("NVIDIA L40S", "8.9")]

    def test_a_closed_module_writes_its_version_otherwise(self, machine: FakeMachine) -> None:
        machine.file(
            "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May\n"
        )
        _, driver = gpu.probe_gpus(machine.world)
        assert driver.kernel_version == "535.183.01"

    def test_a_jetson_without_nvml(self, tmp_path: Path) -> None:
        machine = FakeMachine(tmp_path, cpu="aarch64")
        machine.file(
            "/proc/device-tree/compatible", b"nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0"
        )
        machine.file("/proc/device-tree/model", b"NVIDIA Jetson Orin Nano Developer Kit\0")
        gpus, _ = gpu.probe_gpus(machine.world)
        assert [(each.name, each.capability) for each in gpus] == [("NVIDIA Jetson Orin Nano Developer Kit", "8.7")]

    def test_a_card_on_the_bus_without_a_driver(self, machine: FakeMachine) -> None:
        for address, kind in (("0000:01:00.0", "0x030000"), ("0000:01:00.1", "0x040300")):
            machine.file(f"/sys/bus/pci/devices/{address}/vendor", "0x10de\n")
            machine.file(f"/sys/bus/pci/devices/{address}/class", f"{kind}\n")
            machine.file(f"/sys/bus/pci/devices/{address}/device", "0x2684\n")
        gpus, driver = gpu.probe_gpus(machine.world)
        assert gpus == ()
        assert driver.pci_devices == ("10de:2684",)  # its audio function is no GPU

    def test_nvml_that_prints_rubbish(self, machine: FakeMachine) -> None:
        machine.nvml = "Segmentation fault"
        gpus, driver = gpu.probe_gpus(machine.world)
        assert (gpus, driver.nvml) == ((), "error")

    def test_the_trail_shows_every_step(self, machine: FakeMachine) -> None:
        world = machine.world
        gpu.probe_gpus(world)
        tried = [step.tried for step in world.trail if step.fact == "gpus"]
        assert tried == ["NVML", "/sys/bus/pci/devices", "/proc/driver/nvidia/gpus", "/proc/device-tree/compatible"]


class TestToolkits:
    def test_all_ways_to_one_toolkit_are_one_row(self, machine: FakeMachine) -> None:
        machine.toolkit("/usr/local/cuda-12.8", "12.8.93")
        machine.link("/usr/local/cuda", "/usr/local/cuda-12.8")
        machine.environ |= {"PATH": "/usr/local/cuda/bin:/usr/bin", "CUDA_HOME": "/usr/local/cuda"}
        (found,) = compilers.probe_toolkits(machine.world, ())
        assert (found.version, found.root) == ("12.8.93", "/usr/local/cuda-12.8")
        assert found.found_via == ("PATH", "CUDA_HOME", "/usr/local/cuda*")

    def test_several_toolkits(self, machine: FakeMachine) -> None:
        for root, version in (("/usr/local/cuda-11.8", "11.8.89"), ("/usr/local/cuda-12.8", "12.8.93")):
            machine.toolkit(root, version)
        machine.environ |= {
            "PATH": "/usr/local/cuda-11.8/bin:/usr/local/cuda-12.8/bin",
            "CUDA_PATH": "/usr/local/cuda-12.8",
        }
        found = {each.version: each.found_via for each in compilers.probe_toolkits(machine.world, ())}
        assert found["11.8.89"][0] == "PATH"
        assert found["12.8.93"][:2] == ("PATH, shadowed", "CUDA_PATH")

    def test_a_distribution_that_wraps_nvcc_in_a_script(self, machine: FakeMachine) -> None:
        machine.toolkit("/usr/lib/nvidia-cuda-toolkit", "11.8.89")
        machine.program("/usr/bin/nvcc", "#$ _SPACE_=\n#$ TOP=/usr/lib/nvidia-cuda-toolkit/bin/..\n")
        (found,) = compilers.probe_toolkits(machine.world, ())
        assert found.root == "/usr/lib/nvidia-cuda-toolkit"
        assert found.found_via[0] == "PATH"

    def test_the_wheels_of_the_environment(self, machine: FakeMachine) -> None:
        site = machine.root / "venv/lib/python3.12/site-packages"
        machine.toolkit("/venv/lib/python3.12/site-packages/nvidia/cu13", "13.0.88")
        machine.file("/venv/lib/python3.12/site-packages/nvidia/cuda_nvcc/bin/ptxas")
        (found,) = compilers.probe_toolkits(machine.world, (site,))
        assert found.found_via == ("site-packages",)

    def test_without_a_working_nvcc_its_files_tell(self, machine: FakeMachine) -> None:
        machine.file("/opt/cuda/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}')
        machine.file("/opt/cuda-11/include/cuda.h", "#define CUDA_VERSION 11080\n")
        found = [(each.version, each.nvcc) for each in compilers.probe_toolkits(machine.world, ())]
        assert found == [("12.4.1", None), ("11.8", None)]

    def test_nvcc_is_not_started_where_files_tell(self, machine: FakeMachine) -> None:
        machine.toolkit("/usr/local/cuda-12.8", "12.8.93")
        machine.file("/usr/local/cuda-12.8/version.json", '{"cuda": {"version": "12.8.1"}}')
        machine.toolkit("/usr/local/cuda-11.8", "11.8.89")  # whose release nobody but nvcc knows
        found = {each.version for each in compilers.probe_toolkits(machine.world, (), ask_nvcc=False)}
        assert found == {"12.8.1"}

    def test_rubbish_is_no_toolkit(self, machine: FakeMachine) -> None:
        machine.file("/opt/cuda/version.json", "[1, 2]")
        machine.link("/usr/local/cuda", "/usr/local/cuda")  # a loop
        machine.environ["CUDA_HOME"] = "/nowhere"
        assert compilers.probe_toolkits(machine.world, ()) == ()


class TestCompilers:
    def test_names_and_variables_that_lead_to_one_compiler(self, machine: FakeMachine) -> None:
        machine.program("/usr/bin/x86_64-linux-gnu-g++-12", GCC.format("12.2.0"))
        machine.program("/usr/bin/x86_64-linux-gnu-gcc-12", GCC.format("12.2.0"))
        for name in ("gcc", "gcc-12"):
            machine.link(f"/usr/bin/{name}", "/usr/bin/x86_64-linux-gnu-gcc-12")
        for name in ("g++", "g++-12"):
            machine.link(f"/usr/bin/{name}", "/usr/bin/x86_64-linux-gnu-g++-12")
        machine.environ["CUDAHOSTCXX"] = "g++-12"
        (found,) = compilers.probe_compilers(machine.world)
        assert (found.kind, found.version, found.path) == ("gcc", "12.2.0", "/usr/bin/g++-12")
        assert {"PATH: gcc", "PATH: g++", "CUDAHOSTCXX"} <= set(found.found_via)

    def test_condas_compiler_has_a_prefix_and_one_for_another_processor_is_none(self, machine: FakeMachine) -> None:
        for name in ("x86_64-conda-linux-gnu", "aarch64-conda-linux-gnu", "aarch64-linux-gnu"):
            for program in ("gcc", "g++"):
                machine.program(f"/usr/bin/{name}-{program}", f"{name}-g++ (conda-forge gcc 12.4.0-2) 12.4.0\n")
        (found,) = compilers.probe_compilers(machine.world)
        assert (found.kind, found.version, found.path) == ("gcc", "12.4.0", "/usr/bin/x86_64-conda-linux-gnu-g++")

    def test_clang_and_a_folder_as_ccbin(self, machine: FakeMachine) -> None:
        machine.program("/usr/bin/clang++-17", CLANG.format("17.0.6"))
        machine.program("/opt/gcc-11/bin/g++", GCC.format("11.4.0"))
        machine.environ["NVCC_CCBIN"] = "/opt/gcc-11/bin"
        found = {each.kind: (each.version, each.found_via) for each in compilers.probe_compilers(machine.world)}
        assert found == {"clang": ("17.0.6", ("PATH: clang++-17",)), "gcc": ("11.4.0", ("NVCC_CCBIN",))}

    def test_tools(self, machine: FakeMachine) -> None:
        machine.program("/usr/bin/cmake", "cmake version 3.25.1\n\nCMake suite maintained by Kitware\n")
        machine.program("/usr/bin/ninja", "1.11.1\n")
        assert [(each.name, each.version) for each in compilers.probe_tools(machine.world)] == [
            ("cmake", "3.25.1"),
            ("ninja", "1.11.1"),
        ]

    def test_a_compiler_that_does_not_run_is_left_out(self, machine: FakeMachine) -> None:
        machine.file("/usr/bin/g++").chmod(0o755)
        assert compilers.probe_compilers(machine.world) == ()


class TestEnvironment:
    def site(self, machine: FakeMachine) -> str:
        machine.file("/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.12.3\n")
        return "/venv/lib/python3.12/site-packages"

    def test_frameworks_are_read_from_their_files(self, machine: FakeMachine) -> None:
        site = self.site(machine)
        machine.file(
            f"{site}/torch/version.py",
            "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n"
            "cuda: Optional[str] = '13.0'\ngit_version = 'x'\nhip: Optional[str] = None\n",
        )
        machine.file(f"{site}/jax-0.8.0.dist-info/METADATA")
        machine.file(f"{site}/jax_cuda13_plugin-0.8.0.dist-info/METADATA")
        machine.file(f"{site}/cupy_cuda12x-14.0.0.dist-info/METADATA")
        machine.file(f"{site}/tensorflow-2.19.0.dist-info/METADATA")
        machine.file(
            f"{site}/tensorflow/python/platform/build_info.py",
            'build_info = collections.OrderedDict([("cpu_compiler", "clang"), ("cuda_version", "12.5.1")])\n',
        )
        machine.file(f"{site}/bitsandbytes-0.49.2.dist-info/METADATA")
        for number in ("118", "130", "126"):
            machine.file(f"{site}/bitsandbytes/libbitsandbytes_cuda{number}.so")
        machine.file(f"{site}/bitsandbytes/libbitsandbytes_cpu.so")
        machine.file(f"{site}/nvidia_cublas-13.0.2.14.dist-info/METADATA")
        machine.environ["VIRTUAL_ENV"] = "/venv"
        python, folders = python_environment.locate(machine.world, None)
        frameworks, packages = python_environment.probe_frameworks(folders)
        assert (python.version, python.found_via) == ("3.12.3", "VIRTUAL_ENV")
        assert {each.name: (each.version, each.cuda) for each in frameworks} == {
            "torch": ("2.11.0+cu130", "13.0"),
            "jax": ("0.8.0", "13"),
            "cupy": ("14.0.0", "12"),
            "tensorflow": ("2.19.0", "12.5.1"),
            "bitsandbytes": ("0.49.2", None),
        }
        assert frameworks[-1].libraries == ("11.8", "12.6", "13.0")
        assert [(each.name, each.version) for each in packages] == [("nvidia-cublas", "13.0.2.14")]

    def test_a_cpu_torch(self, machine: FakeMachine) -> None:
        site = self.site(machine)
        machine.file(f"{site}/torch/version.py", "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n")
        _, folders = python_environment.locate(machine.world, machine.root / "venv")
        (torch,), _ = python_environment.probe_frameworks(folders)
        assert torch.cuda is None

    def test_another_environment_that_is_none(self, machine: FakeMachine) -> None:
        with pytest.raises(UnreadableError, match="not a Python environment"):
            python_environment.locate(machine.world, machine.root / "nowhere")


class TestVariables:
    @systems.LINUX_PATHS
    def test_a_cargo_project_sets_its_own(self, machine: FakeMachine) -> None:
        machine.file(
            "/project/.cargo/config.toml",
            '[env]\nCUDA_COMPUTE_CAP = "89"\nNVCC_CCBIN = { value = "tools/cl", relative = true }\n'
            'CUDA_PATH = { value = "/forced", force = true }\nOTHER = "x"\n',
        )
        machine.environ |= {"CUDA_PATH": "/mine", "CUDA_COMPUTE_CAP": "120"}
        found = {each.name: (each.value, each.found_via) for each in system.probe_variables(machine.world)}
        assert found["CUDA_COMPUTE_CAP"] == ("120", "environment")
        assert found["CUDA_PATH"] == ("/forced", "/project/.cargo/config.toml")
        assert found["NVCC_CCBIN"][0].endswith("project/tools/cl")
        assert "OTHER" not in found

    @systems.LINUX_PATHS
    def test_cargos_own_configuration_comes_last(self, machine: FakeMachine) -> None:
        machine.file("/project/.cargo/config.toml", '[env]\nCUDA_PATH = "/near"\n')
        machine.file("/opt/cargo/config.toml", '[env]\nCUDA_PATH = "/far"\nOTHER = { value = "x", relative = true }\n')
        machine.environ |= {"CARGO_HOME": "/opt/cargo"}
        found = {each.name: (each.value, each.found_via) for each, _ in system.cargo_variables(machine.world)}
        assert found["CUDA_PATH"] == ("/near", "/project/.cargo/config.toml")
        assert found["OTHER"][0].endswith("/opt/x")
        assert found["OTHER"][1] == "/opt/cargo/config.toml"

    def test_a_broken_cargo_file_is_noted(self, machine: FakeMachine) -> None:
        machine.file("/project/.cargo/config.toml", "[env\n")
        world = machine.world
        assert system.probe_variables(world) == ()
        assert any("cannot be read" in step.outcome for step in world.trail)

    def test_library_folders(self, machine: FakeMachine) -> None:
        machine.file("/opt/cuda/lib64/libcublas.so.12")
        machine.file("/opt/cuda/lib64/libm.so.6")
        machine.environ["LD_LIBRARY_PATH"] = "/opt/cuda/lib64:/nowhere:"
        found = system.probe_library_folders(machine.world, ())
        assert [(each.path, each.libraries) for each in found] == [
            ("/opt/cuda/lib64", ("libcublas.so.12",)),
            ("/nowhere", ()),
        ]
