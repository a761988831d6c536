"""Questions that several rules ask of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts import toolchains, toolkits, versions

if TYPE_CHECKING:
    from cuwheel.facts.rows.common import OperatingSystem
    from cuwheel.facts.rows.toolkits import Toolkit as ToolkitRow
    from cuwheel.machine.profile import Compiler, Gpu, MachineProfile, Toolkit

# The way to a compiler, in the order in which nvcc and CMake look; the last is nvcc's own default.
_HOST_COMPILER_WAYS = ("NVCC_CCBIN", "CUDAHOSTCXX", "PATH: gcc", "PATH: g++")
WAYS_ON_WINDOWS = ("NVCC_CCBIN", "CUDAHOSTCXX", "PATH: cl.exe")
_NVCC_WAYS = ("CUDACXX", "PATH", "CUDA_HOME", "CUDA_PATH")


def system(machine: MachineProfile) -> OperatingSystem:
    return "windows" if machine.system.os.value == "Windows" else "linux"


def toolkit_by(machine: MachineProfile, way: str) -> Toolkit | None:
    return next((each for each in machine.toolkits if way in each.found_via and each.nvcc), None)


def toolkit_in_use(machine: MachineProfile) -> Toolkit | None:
    """The one whose nvcc a build would most likely run; failing all ways, the only one there is."""
    for way in _NVCC_WAYS:
        if found := toolkit_by(machine, way):
            return found
    with_nvcc = [each for each in machine.toolkits if each.nvcc]
    return with_nvcc[0] if len(with_nvcc) == 1 else None


def way_to(machine: MachineProfile, toolkit: Toolkit) -> str:
    return next((way for way in _NVCC_WAYS if toolkit_by(machine, way) == toolkit), toolkit.found_via[0])


def host_compiler(machine: MachineProfile, cuda: str) -> tuple[Compiler, str] | None:
    """The one that nvcc of this release would use; on Windows, failing that, the newest, which build systems take."""
    windows = system(machine) == "windows"
    ways = WAYS_ON_WINDOWS if windows else _HOST_COMPILER_WAYS
    for way in ways if toolchains.reads_ccbin(cuda) else ways[1:]:
        for compiler in machine.compilers:
            if way in compiler.found_via:
                return compiler, way
    found = [each for each in machine.compilers if windows and each.kind == "msvc"]
    best = max(found, key=lambda each: versions.key(each.version), default=None)
    return (best, best.found_via[0]) if best else None


def msvc_prompt(machine: MachineProfile, compiler: Compiler) -> str:
    """The command after which this cl.exe is the one on PATH."""
    studio = next((each for each in machine.visual_studios if compiler.path.startswith(each.path)), None)
    place = f"{studio.path}\\VC\\Auxiliary\\Build\\vcvars64.bat" if studio else "vcvars64.bat"
    toolset = versions.minor(compiler.version).replace("19.", "14.", 1)
    return f'call "{place}" -vcvars_ver={toolset}'


def row(version: str) -> ToolkitRow | None:
    """What the table says of a version; None for one it does not know (yet)."""
    try:
        return toolkits.find_toolkit(version)
    except UnknownNameError:
        return None


def named(gpu: Gpu) -> str:
    return f"{gpu.name} ({gpu.capability})" if gpu.capability else gpu.name


def is_jetson(machine: MachineProfile) -> bool:
    return machine.system.l4t is not None


def prefers_apt(machine: MachineProfile) -> bool:
    distribution = machine.system.distribution.value.lower() if machine.system.distribution else ""
    return not any(name in distribution for name in ("fedora", "red hat", "rocky", "alma", "centos", "suse", "arch"))


def setting(machine: MachineProfile, **variables: str) -> str:
    """The line that sets variables, where they are set now: in the shell, or in the project's own file."""
    for name in variables:
        present = machine.variable(name)
        if present and present.found_via != "environment":
            return f"in {present.found_via}: " + ", ".join(f'{each} = "{value}"' for each, value in variables.items())
    if system(machine) == "windows":
        return " && ".join(f'set "{name}={value}"' for name, value in variables.items())
    # A profile writes the home folder as ~, which a shell does not expand between quotes.
    return "export " + " ".join(f'{name}="{value.replace("~/", "$HOME/")}"' for name, value in variables.items())


def unsetting(machine: MachineProfile, name: str) -> str:
    present = machine.variable(name)
    if present and present.found_via != "environment":
        return f"remove {name} from {present.found_via}"
    return f"set {name}=" if system(machine) == "windows" else f"unset {name}"
