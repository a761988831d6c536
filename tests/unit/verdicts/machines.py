"""Synthetic machines: each a profile, and exactly the findings that it must give (all others it must not)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cuwheel.machine.profile import (
    Attempt,
    Compiler,
    Driver,
    Fact,
    Framework,
    Gpu,
    LibraryFolder,
    MachineProfile,
    Python,
    System,
    Tool,
    Toolkit,
    Variable,
    VisualStudio,
)
from cuwheel_core.facts.arch import Capability


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A profile in few words: what is not said is a healthy x86-64 Ubuntu without anything on it.

    gpus: (name, capability). toolkits: root → version, with the ways to it. compilers: way → version.
    """

    name: str
    expected: set[str]
    gpus: tuple[tuple[str, str], ...] = ()
    driver: str | None = None
    driver_cuda: str | None = None
    nvml: str | None = None
    kernel: str | None = None
    libcuda: str | None = None
    nodes: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    toolkits: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    compilers: tuple[tuple[str, str, tuple[str, ...]], ...] = (("gcc", "11.4.0", ("PATH: gcc", "PATH: g++")),)
    cmake: str | None = "3.28.3"
    frameworks: tuple[tuple[str, str, str | None], ...] = ()
    bitsandbytes: tuple[str, ...] | None = None
    bitsandbytes_version: str = "0.49.2"
    variables: dict[str, str] = field(default_factory=dict)
    folders: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    os: str = "Linux"
    distribution: str = "Ubuntu 22.04.5 LTS"
    cpu: str = "x86_64"
    glibc: str = "2.35"
    l4t: str | None = None
    wsl: str | None = None
    container: str | None = None
    variables_from: str = "environment"
    studios: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def profile(self) -> MachineProfile:
        frameworks = [Framework(name=n, version=v, cuda=c, found_via=f"{n}/version.py") for n, v, c in self.frameworks]
        if self.bitsandbytes is not None:
            frameworks.append(
                Framework(
                    name="bitsandbytes",
                    version=self.bitsandbytes_version,
                    libraries=self.bitsandbytes,
                    found_via="its files",
                )
            )
        return MachineProfile(
            system=System(
                os=_fact(self.os),
                cpu=_fact(self.cpu),
                distribution=_fact(self.distribution),
                glibc=_fact(self.glibc) if self.os == "Linux" else None,
                l4t=_fact(self.l4t) if self.l4t else None,
                wsl=_fact(self.wsl) if self.wsl else None,
                container=_fact(self.container) if self.container else None,
            ),
            driver=self._driver(),
            gpus=tuple(
                Gpu(name=name, capability=Capability.parse(capability), found_via="NVML")
                for name, capability in self.gpus
            ),
            toolkits=tuple(
                Toolkit(version=version, root=root, nvcc=f"{root}/bin/nvcc", found_via=ways)
                for root, version, ways in self.toolkits
            ),
            compilers=tuple(
                Compiler(kind=kind, version=version, path=f"/usr/bin/{kind}-{version}", found_via=ways)  # type: ignore[arg-type]
                for kind, version, ways in self.compilers
            ),
            visual_studios=tuple(
                VisualStudio(
                    name=f"Visual Studio {place}", version="", path=f"C:\\VS\\{place}", found_via="vswhere", cuda=cuda
                )
                for place, cuda in self.studios
            ),
            tools=(Tool(name="cmake", version=self.cmake, path="/usr/bin/cmake"),) if self.cmake else (),
            python=Python(version="3.12.3", prefix="~/venv", found_via="VIRTUAL_ENV"),
            frameworks=tuple(frameworks),
            variables=tuple(
                Variable(name=name, value=value, found_via=self.variables_from)
                for name, value in self.variables.items()
            ),
            library_folders=tuple(
                LibraryFolder(path=path, found_via=way, libraries=libraries) for path, way, libraries in self.folders
            ),
            trail=(Attempt(fact="gpus", tried="NVML", outcome="as the test says"),),
        )

    def _driver(self) -> Driver:
        state = self.nvml or ("ok" if self.gpus else "library-missing")
        return Driver(
            nvml=state,  # type: ignore[arg-type]
            found_via="NVML",
            version=self.driver,
            cuda=self.driver_cuda,
            kernel_version=self.kernel or (self.driver if self.gpus else None),
            libcuda=self.libcuda or ("/usr/lib/x86_64-linux-gnu/libcuda.so.1" if self.gpus else None),
            device_nodes=self.nodes or tuple(f"/dev/nvidia{index}" for index in range(len(self.gpus))),
            pci_devices=self.pci,
        )


def _fact(value: str) -> Fact:
    return Fact(value=value, found_via="the test")


H100 = ("NVIDIA H100 80GB HBM3", "9.0")
L40 = ("NVIDIA L40", "8.9")
A4000 = ("NVIDIA RTX A4000", "8.6")
RTX5060TI = ("NVIDIA GeForce RTX 5060 Ti", "12.0")
V100 = ("Tesla V100-SXM2-16GB", "7.0")
ORIN = ("Orin (nvgpu)", "8.7")
B200 = ("NVIDIA B200", "10.0")
CUDA_LIBRARIES = ("libcublas.so.12", "libcudart.so.12")


def toolkit(version: str, *ways: str) -> tuple[str, str, tuple[str, ...]]:
    return f"/usr/local/cuda-{version}", f"{version}.99", ways or ("PATH",)


MACHINES = (
    # What the five real teams had in front of them.
    Machine(
        name="conda: GCC 13 first, and a compiler of conda's that fits",
        toolkits=(("/usr", "12.0.140", ("PATH",)),),
        compilers=(("gcc", "13.2.0", ("PATH: gcc",)), ("gcc", "12.4.0", ("PATH: x86_64-conda-linux-gnu-g++",))),
        expected={"host-compiler-too-new", "no-gpu"},
    ),
    Machine(
        name="conda: no compiler but conda's, which nvcc does not look for",
        toolkits=(("/usr/local/cuda", "12.4.131", ("PATH",)),),
        compilers=(("gcc", "12.4.0", ("PATH: x86_64-conda-linux-gnu-g++",)),),
        expected={"host-compiler-missing", "no-gpu"},
    ),
    Machine(
        name="case 1: CMake picks the system's nvcc 12.0, not conda's 12.2, and GCC 13",
        gpus=(A4000,),
        driver="535.183.01",
        driver_cuda="12.2",
        toolkits=(
            ("/usr", "12.0.140", ("PATH",)),
            ("~/miniforge3/envs/bnb122", "12.2.140", ("CUDA_HOME", "CONDA_PREFIX")),
        ),
        compilers=(("gcc", "13.2.0", ("PATH: gcc",)), ("gcc", "12.3.0", ("PATH: g++-12",))),
        frameworks=(("torch", "2.5.1+cu124", "12.4"),),
        bitsandbytes=("12.1", "12.4"),
        variables={"CUDA_HOME": "~/miniforge3/envs/bnb122"},
        distribution="Ubuntu 24.04 LTS",
        glibc="2.39",
        expected={
            "nvcc-mismatch",
            "host-compiler-too-new",
            "torch-toolkit-mismatch",
            "driver-older-than-framework",
        },
    ),
    Machine(
        name="case 1, put right: everything forced to conda's 12.2 and GCC 12, the library pinned",
        gpus=(A4000,),
        driver="535.183.01",
        driver_cuda="12.2",
        toolkits=(("~/miniforge3/envs/bnb122", "12.2.140", ("PATH", "CUDA_HOME", "CUDACXX", "CONDA_PREFIX")),),
        compilers=(("gcc", "12.3.0", ("PATH: gcc", "CUDAHOSTCXX")),),
        frameworks=(("torch", "2.3.0+cu122", "12.2"),),
        bitsandbytes=("12.2",),
        variables={"CUDA_HOME": "~/miniforge3/envs/bnb122", "BNB_CUDA_VERSION": "122"},
        expected=set(),
    ),
    Machine(
        name="case 1: BNB_CUDA_VERSION pinned, but the stock wheel is installed",
        gpus=(A4000,),
        driver="535.183.01",
        driver_cuda="12.2",
        frameworks=(("torch", "2.3.0+cu121", "12.1"),),
        bitsandbytes=("11.8", "12.1", "12.4"),
        variables={"BNB_CUDA_VERSION": "122"},
        expected={"bitsandbytes-library-missing"},
    ),
    Machine(
        name="case 2: H100s and L40s, toolkit and torch agree",
        gpus=(H100, H100, L40),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("12.8", "PATH", "CUDA_HOME"),),
        frameworks=(("torch", "2.8.0+cu128", "12.8"),),
        variables={"CUDA_HOME": "/usr/local/cuda-12.8", "CMAKE_CUDA_ARCHITECTURES": "89;90"},
        expected=set(),
    ),
    Machine(
        name="case 2: the list names only H100s",
        gpus=(H100, L40),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("12.8"),),
        variables={"CMAKE_CUDA_ARCHITECTURES": "90-real"},
        expected={"architecture-misses-gpu"},
    ),
    Machine(
        name="case 3: a Jetson Orin with JetPack 6",
        gpus=(ORIN,),
        driver="540.4.0",
        driver_cuda="12.6",
        toolkits=(toolkit("12.6"),),
        cpu="aarch64",
        l4t="36.4.3",
        frameworks=(("torch", "2.5.0", "12.6"),),
        expected=set(),
    ),
    Machine(
        name="case 3: the same with the list of the pull request, which sm_80 already served",
        gpus=(ORIN,),
        driver="540.4.0",
        driver_cuda="12.6",
        toolkits=(toolkit("12.6"),),
        cpu="aarch64",
        l4t="36.4.3",
        variables={"CMAKE_CUDA_ARCHITECTURES": "75;80;90"},
        expected=set(),
    ),
    Machine(
        name="case 4: a Windows team that believes its RTX 5060 Ti is 8.9, five toolkits installed",
        os="Windows",
        distribution="Windows 11",
        gpus=(RTX5060TI,),
        driver="581.29",
        driver_cuda="13.0",
        toolkits=(toolkit("12.1", "PATH"), toolkit("13.0", "CUDA_PATH"), toolkit("12.9", "PATH, shadowed")),
        compilers=(("msvc", "19.44.35215", ("PATH: cl.exe",)),),
        variables={"CUDA_COMPUTE_CAP": "89", "CUDA_PATH": "/usr/local/cuda-13.0"},
        variables_from="candle/.cargo/config.toml",
        expected={
            "nvcc-mismatch",
            "toolkit-cannot-target-gpu",
            "architecture-misses-gpu",
            "host-compiler-too-new",  # 12.1 takes MSVC up to 19.39
        },
    ),
    Machine(
        name="case 4, the environment of the project put right",
        os="Windows",
        distribution="Windows 11",
        gpus=(RTX5060TI,),
        driver="581.29",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0", "PATH", "CUDA_PATH"),),
        compilers=(("msvc", "19.44.35215", ("PATH: cl.exe",)),),
        variables={"CUDA_COMPUTE_CAP": "120", "CUDA_PATH": "/usr/local/cuda-13.0"},
        expected=set(),
    ),
    Machine(
        name="Windows with a Visual Studio of before CUDA 13's time",
        os="Windows",
        distribution="Windows 11",
        gpus=(RTX5060TI,),
        driver="581.29",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0", "CUDA_PATH"),),
        compilers=(("msvc", "19.16.27054", ("PATH: cl.exe",)),),
        expected={"host-compiler-too-old"},
    ),
    Machine(
        name="Windows with Visual Studio installed after CUDA, in a plain prompt",
        os="Windows",
        distribution="Windows 11",
        gpus=(RTX5060TI,),
        driver="581.29",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0", "CUDA_PATH", "CUDA_PATH_V13_0"),),
        compilers=(("msvc", "19.44.35215", ("Visual Studio 2022",)),),
        studios=(("2022", ("12.8",)),),
        expected={"host-compiler-not-on-path", "visual-studio-without-cuda"},
    ),
    Machine(
        name="Windows with two toolsets, the older of which CUDA 12.8 takes",
        os="Windows",
        distribution="Windows 11",
        gpus=(RTX5060TI,),
        driver="581.29",
        driver_cuda="13.0",
        toolkits=(toolkit("12.8", "CUDA_PATH"),),
        compilers=(("msvc", "19.50.35717", ("PATH: cl.exe",)), ("msvc", "19.44.35215", ("Visual Studio 2022",))),
        studios=(("2022", ("12.8",)), ("2026", ())),
        expected={"host-compiler-too-new"},
    ),
    Machine(
        name="Windows with a toolkit and gcc of MSYS2 alone",
        os="Windows",
        distribution="Windows 11",
        gpus=(RTX5060TI,),
        driver="581.29",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0", "CUDA_PATH"),),
        compilers=(("gcc", "15.2.0", ("PATH: gcc.exe",)),),
        expected={"host-compiler-missing"},
    ),
    Machine(
        name="case 5: a manylinux container that builds, without a GPU",
        container="docker",
        distribution="AlmaLinux 8.10",
        glibc="2.28",
        toolkits=(toolkit("12.8", "PATH", "CUDA_HOME"),),
        variables={"CUDA_HOME": "/usr/local/cuda-12.8"},
        expected={"no-gpu"},
    ),
    Machine(
        name="case 5: CUDA_ROOT forgotten, CUDA_HOME from another image",
        container="docker",
        distribution="AlmaLinux 8.10",
        glibc="2.28",
        toolkits=(toolkit("12.8", "/usr/local/cuda*"),),
        variables={"CUDA_HOME": "/usr/local/cuda-12.2"},
        expected={"no-gpu", "cuda-home-broken"},
    ),
    # GPUs and drivers.
    Machine(name="a laptop without an NVIDIA GPU", expected={"no-gpu"}),
    Machine(name="macOS", os="Darwin", distribution="macOS 15", cpu="arm64", expected={"no-gpu"}),
    Machine(
        name="a healthy H200", gpus=(("NVIDIA H200", "9.0"),), driver="580.95.05", driver_cuda="13.0", expected=set()
    ),
    Machine(name="a GPU on the bus and no driver", pci=("10de:2330",), expected={"no-driver"}),
    Machine(
        name="an RTX 5090 that its driver does not know",
        pci=("10de:2b85",),
        nvml="driver-not-loaded",
        driver="535.183.01",
        libcuda="/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        expected={"driver-does-not-know-gpu", "driver-not-answering"},
    ),
    Machine(
        name="a GTX 1080 beside an RTX 4090, with a driver that has dropped it",
        gpus=(("NVIDIA GeForce RTX 4090", "8.9"),),
        pci=("10de:1b80", "10de:2684"),
        driver="590.48.01",
        driver_cuda="13.1",
        expected={"driver-does-not-know-gpu"},
    ),
    Machine(
        name="driver installed, module not built for the new kernel",
        pci=("10de:2684",),
        nvml="driver-not-loaded",
        expected={"driver-not-answering"},
    ),
    Machine(
        name="driver updated without a restart",
        pci=("10de:2684",),
        nvml="version-mismatch",
        kernel="570.133.07",
        driver="570.133.07",
        nodes=("/dev/nvidia0",),
        expected={"driver-not-answering"},
    ),
    Machine(
        name="a driver that hangs",
        pci=("10de:2684",),
        nvml="timeout",
        kernel="570.133.07",
        nodes=("/dev/nvidia0",),
        expected={"driver-not-answering"},
    ),
    Machine(
        name="a user outside the video group",
        pci=("10de:2684",),
        nvml="no-permission",
        kernel="570.133.07",
        nodes=("/dev/nvidia0",),
        expected={"driver-not-answering"},
    ),
    Machine(
        name="docker run without --gpus on a GPU host",
        container="docker",
        pci=("10de:2330",),
        kernel="550.54.15",
        nvml="library-missing",
        expected={"container-without-gpu-runtime"},
    ),
    Machine(
        name="the same container with --gpus",
        container="docker",
        gpus=(H100,),
        driver="550.54.15",
        driver_cuda="12.4",
        expected=set(),
    ),
    Machine(name="a container on a host without GPUs", container="podman", expected={"no-gpu"}),
    Machine(name="WSL without Windows' driver", wsl="2", expected={"wsl-libcuda-missing"}),
    Machine(
        name="WSL as it should be",
        wsl="2",
        gpus=(("NVIDIA GeForce RTX 4070", "8.9"),),
        driver="572.16",
        driver_cuda="12.8",
        libcuda="/usr/lib/wsl/lib/libcuda.so.1",
        expected=set(),
    ),
    Machine(
        name="WSL with a Linux driver installed over it",
        wsl="2",
        gpus=(("NVIDIA GeForce RTX 4070", "8.9"),),
        driver="572.16",
        driver_cuda="12.8",
        expected={"wsl-libcuda-missing"},
    ),
    # Driver against framework.
    Machine(
        name="torch for CUDA 13 on a driver of the 570 branch",
        gpus=(H100,),
        driver="570.133.20",
        driver_cuda="12.8",
        frameworks=(("torch", "2.11.0+cu130", "13.0"),),
        expected={"driver-too-old"},
    ),
    Machine(
        name="torch for CUDA 12.8 on a driver of 12.4: minor-version compatibility",
        gpus=(H100,),
        driver="550.54.15",
        driver_cuda="12.4",
        frameworks=(("torch", "2.8.0+cu128", "12.8"),),
        expected={"driver-older-than-framework"},
    ),
    Machine(
        name="torch for CUDA 12 on a driver of 11.8, below the floor of 12",
        gpus=(A4000,),
        driver="520.61.05",
        driver_cuda="11.8",
        frameworks=(("torch", "2.3.0+cu121", "12.1"),),
        expected={"driver-too-old"},
    ),
    Machine(
        name="exactly the floor of CUDA 12",
        gpus=(A4000,),
        driver="525.60.13",
        driver_cuda="12.0",
        frameworks=(("torch", "2.3.0+cu121", "12.1"),),
        expected={"driver-older-than-framework"},
    ),
    Machine(
        name="jax tells its major alone, cupy too; both fit",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("jax", "0.8.0", "13"), ("cupy", "14.0.0", "12")),
        expected=set(),
    ),
    Machine(
        name="jax for CUDA 13 on a driver of 12.x",
        gpus=(H100,),
        driver="550.54.15",
        driver_cuda="12.4",
        frameworks=(("jax", "0.8.0", "13"),),
        expected={"driver-too-old"},
    ),
    Machine(
        name="Windows has a floor of its own",
        os="Windows",
        distribution="Windows 11",
        gpus=(A4000,),
        driver="527.41",
        driver_cuda="12.0",
        compilers=(),
        frameworks=(("torch", "2.3.0+cu121", "12.1"),),
        expected={"driver-too-old"},
    ),
    # Framework against GPU.
    Machine(
        name="a 50-series card with torch for CUDA 12.4",
        gpus=(RTX5060TI,),
        driver="576.02",
        driver_cuda="12.9",
        frameworks=(("torch", "2.5.1+cu124", "12.4"),),
        expected={"framework-misses-gpu"},
    ),
    Machine(
        name="a V100 with torch for CUDA 13, which dropped it",
        gpus=(V100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("torch", "2.11.0+cu130", "13.0"),),
        expected={"framework-misses-gpu"},
    ),
    Machine(
        name="a V100 with torch for CUDA 12.6",
        gpus=(V100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("torch", "2.11.0+cu126", "12.6"),),
        expected=set(),
    ),
    Machine(
        name="CPU torch beside a GPU",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("torch", "2.11.0+cpu", None),),
        expected={"cpu-only-torch"},
    ),
    Machine(name="CPU torch without a GPU is right", frameworks=(("torch", "2.11.0+cpu", None),), expected={"no-gpu"}),
    Machine(
        name="bitsandbytes without a library for torch's major",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("torch", "2.11.0+cu130", "13.0"),),
        bitsandbytes=("11.8", "12.4", "12.8"),
        expected={"bitsandbytes-library-missing"},
    ),
    Machine(
        name="bitsandbytes 0.49 has no library for this very CUDA",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("torch", "2.9.0+cu129", "12.9"),),
        bitsandbytes=("12.4", "12.8"),
        expected={"bitsandbytes-library-missing"},
    ),
    Machine(
        name="bitsandbytes 0.50 falls back to a lower minor",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        frameworks=(("torch", "2.9.0+cu129", "12.9"),),
        bitsandbytes=("12.4", "12.8"),
        bitsandbytes_version="0.50.0",
        expected=set(),
    ),
    # Toolkits and compilers.
    Machine(
        name="torch refuses to build extensions with another major",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("12.8"),),
        frameworks=(("torch", "2.11.0+cu130", "13.0"),),
        expected={"torch-toolkit-mismatch"},
    ),
    Machine(
        name="two folders of the same version",
        toolkits=(
            ("/opt/cuda", "12.8.93", ("PATH",)),
            ("/usr/local/cuda-12.8", "12.8.61", ("CUDA_HOME",)),
        ),
        variables={"CUDA_HOME": "/usr/local/cuda-12.8"},
        expected={"no-gpu", "nvcc-mismatch"},
    ),
    Machine(
        name="CUDACXX and CUDA_HOME agree, PATH has another",
        toolkits=(toolkit("12.8", "CUDACXX", "CUDA_HOME"), toolkit("11.8", "PATH")),
        variables={"CUDA_HOME": "/usr/local/cuda-12.8", "CUDACXX": "/usr/local/cuda-12.8/bin/nvcc"},
        expected={"no-gpu"},
    ),
    Machine(
        name="GCC 14 with CUDA 12.4",
        toolkits=(toolkit("12.4"),),
        compilers=(("gcc", "14.2.0", ("PATH: gcc", "PATH: g++")),),
        distribution="Fedora Linux 41",
        glibc="2.40",
        expected={"no-gpu", "host-compiler-too-new"},
    ),
    Machine(
        name="GCC 16 with CUDA 13.0, but NVCC_CCBIN is 13",
        toolkits=(toolkit("13.0"),),
        compilers=(("gcc", "16.1.0", ("PATH: gcc",)), ("gcc", "13.3.0", ("NVCC_CCBIN",))),
        expected={"no-gpu"},
    ),
    Machine(
        name="GCC 14 with CUDA 12.4, and NVCC_CCBIN, which that nvcc does not read",
        toolkits=(toolkit("12.4"),),
        compilers=(("gcc", "14.2.0", ("PATH: gcc",)), ("gcc", "13.3.0", ("NVCC_CCBIN",))),
        expected={"no-gpu", "host-compiler-too-new"},
    ),
    Machine(
        name="GCC 14 with CUDA 12.4, but CUDAHOSTCXX is 13",
        toolkits=(toolkit("12.4"),),
        compilers=(("gcc", "14.2.0", ("PATH: gcc",)), ("gcc", "13.3.0", ("CUDAHOSTCXX",))),
        expected={"no-gpu"},
    ),
    Machine(
        name="clang as host compiler, too new",
        toolkits=(toolkit("12.4"),),
        compilers=(("clang", "19.1.0", ("CUDAHOSTCXX",)),),
        expected={"no-gpu", "host-compiler-too-new"},
    ),
    Machine(
        name="nvcc and no compiler",
        toolkits=(toolkit("13.0"),),
        compilers=(),
        expected={"no-gpu", "host-compiler-missing"},
    ),
    Machine(
        name="Debian trixie: glibc 2.41 against CUDA 12.4's headers",
        distribution="Debian GNU/Linux 13 (trixie)",
        glibc="2.41",
        toolkits=(toolkit("12.4"),),
        compilers=(("gcc", "13.3.0", ("PATH: gcc",)),),
        expected={"no-gpu", "glibc-too-new"},
    ),
    Machine(
        name="Debian trixie with CUDA 13.0",
        distribution="Debian GNU/Linux 13 (trixie)",
        glibc="2.41",
        toolkits=(toolkit("13.0"),),
        compilers=(("gcc", "14.2.0", ("PATH: gcc",)),),
        expected={"no-gpu"},
    ),
    Machine(
        name="an old CMake",
        toolkits=(toolkit("11.8"),),
        cmake="3.16.3",
        compilers=(("gcc", "9.4.0", ("PATH: gcc",)),),
        expected={"no-gpu", "cmake-too-old"},
    ),
    Machine(name="an old CMake without CUDA is nobody's problem", cmake="3.16.3", expected={"no-gpu"}),
    Machine(
        name="a B200 with the toolkit before it",
        gpus=(B200,),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("12.6"),),
        expected={"toolkit-cannot-target-gpu"},
    ),
    Machine(
        name="a toolkit that the tables do not know yet",
        gpus=(H100,),
        driver="999.1",
        driver_cuda="99.0",
        toolkits=(toolkit("99.0"),),
        compilers=(("gcc", "99.0", ("PATH: gcc",)),),
        expected=set(),
    ),
    # Variables.
    Machine(
        name="an architecture that the toolkit dropped",
        toolkits=(toolkit("13.0"),),
        variables={"TORCH_CUDA_ARCH_LIST": "7.0;8.0;9.0+PTX"},
        expected={"no-gpu", "architecture-not-compilable"},
    ),
    Machine(
        name="an architecture that does not exist",
        toolkits=(toolkit("13.0"),),
        variables={"CUDAARCHS": "sm90x"},
        expected={"no-gpu", "architecture-not-compilable"},
    ),
    Machine(
        name="generations and native are words too",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0"),),
        variables={"TORCH_CUDA_ARCH_LIST": "Hopper", "CMAKE_CUDA_ARCHITECTURES": "native"},
        expected=set(),
    ),
    Machine(
        name="PTX of an older architecture serves a newer GPU",
        gpus=(RTX5060TI,),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0"),),
        variables={"TORCH_CUDA_ARCH_LIST": "8.0+PTX"},
        expected=set(),
    ),
    Machine(
        name="90a runs on no other 9.x, and not on an L40",
        gpus=(L40,),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0"),),
        variables={"CMAKE_CUDA_ARCHITECTURES": "90a"},
        expected={"architecture-misses-gpu"},
    ),
    Machine(
        name="100f serves a B300, its family",
        gpus=(("NVIDIA B300", "10.3"),),
        driver="580.65.06",
        driver_cuda="13.0",
        toolkits=(toolkit("13.0"),),
        variables={"CMAKE_CUDA_ARCHITECTURES": "100f-real"},
        expected=set(),
    ),
    Machine(
        name="JIT switched off",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"CUDA_DISABLE_PTX_JIT": "1", "CUDA_FORCE_PTX_JIT": "0"},
        expected={"jit-switched"},
    ),
    Machine(
        name="JIT forced",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"CUDA_FORCE_PTX_JIT": "1"},
        expected={"jit-switched"},
    ),
    Machine(
        name="every GPU hidden",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"CUDA_VISIBLE_DEVICES": ""},
        expected={"gpu-hidden"},
    ),
    Machine(
        name="one of two GPUs visible, by its UUID",
        gpus=(H100, H100),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"CUDA_VISIBLE_DEVICES": "GPU-8a3c"},
        expected=set(),
    ),
    Machine(
        name="a device number that is not there",
        gpus=(H100, H100),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"CUDA_VISIBLE_DEVICES": "2"},
        expected={"gpu-hidden"},
    ),
    # The loader's path.
    Machine(
        name="LD_LIBRARY_PATH hides the environment's CUDA libraries",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"},
        folders=(
            ("/usr/local/cuda/lib64", "LD_LIBRARY_PATH", CUDA_LIBRARIES),
            ("~/venv/lib/python3.12/site-packages/nvidia/cublas/lib", "site-packages", ("libcublas.so.12",)),
        ),
        expected={"library-path-shadows"},
    ),
    Machine(
        name="LD_LIBRARY_PATH with another major hides nothing",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"LD_LIBRARY_PATH": "/usr/local/cuda-12/lib64"},
        folders=(
            ("/usr/local/cuda-12/lib64", "LD_LIBRARY_PATH", CUDA_LIBRARIES),
            ("~/venv/lib/python3.12/site-packages/nvidia/cu13/lib", "site-packages", ("libcublas.so.13",)),
        ),
        expected=set(),
    ),
    Machine(
        name="the stub of libcuda on the loader's path",
        gpus=(H100,),
        driver="580.65.06",
        driver_cuda="13.0",
        variables={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs/"},
        expected={"libcuda-stub-on-path"},
    ),
)
