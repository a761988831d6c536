"""Questions that several rules, and the causes of failures, ask of a machine's profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cuwheel.facts import toolchain_parts
from cuwheel.support import quoting
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import toolkits, versions

if TYPE_CHECKING:
    from cuwheel.machine.profile import Compiler, Gpu, MachineProfile, Toolkit
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.toolkits import Toolkit as ToolkitRow

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
    for way in ways if toolchain_parts.reads_ccbin(cuda) else ways[1:]:
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
    call = f'"{place}" -vcvars_ver={toolset}'
    spelled: dict[quoting.Shell, str] = {
        "cmd": f"call {call}",
        # What a batch file sets is gone with the cmd.exe that ran it: the next shell is started inside.
        "powershell": f"cmd /c '{call} && powershell'",
        "posix": f"in a Command Prompt: call {call}",
    }
    return _in_its_shell(machine, spelled.__getitem__)


def row(version: str) -> ToolkitRow | None:
    """What the table says of a version; None for one it does not know (yet)."""
    try:
        return toolkits.find_toolkit(version)
    except UnknownNameError:
        return None


def gpu_in_words(gpu: Gpu) -> str:
    return f"{gpu.name} ({gpu.capability})" if gpu.capability else gpu.name


def is_jetson(machine: MachineProfile) -> bool:
    return machine.system.l4t is not None


def prefers_apt(machine: MachineProfile) -> bool:
    distribution = machine.system.distribution.value.lower() if machine.system.distribution else ""
    return not any(name in distribution for name in ("fedora", "red hat", "rocky", "alma", "centos", "suse", "arch"))


def setting(machine: MachineProfile, *, first_on_path: str = "", **variables: str) -> str:
    """The line that sets variables, where they are set now: in the shell, or in the project's own file."""
    for name in variables:
        present = machine.variable(name)
        if present and present.found_via != "environment":
            return f"in {present.found_via}: " + ", ".join(f'{each} = "{value}"' for each, value in variables.items())
    given = ({"PATH": first_on_path} if first_on_path else {}) | variables
    return _in_its_shell(machine, lambda shell: quoting.set_variables(given, shell, prepend=("PATH",)))


def unsetting(machine: MachineProfile, name: str) -> str:
    present = machine.variable(name)
    if present and present.found_via != "environment":
        return f"remove {name} from {present.found_via}"
    return _in_its_shell(machine, lambda shell: quoting.unset_variable(name, shell))


def _in_its_shell(machine: MachineProfile, spelled: Callable[[quoting.Shell], str]) -> str:
    """A command as the machine's shell takes it; as both of Windows' do if the profile does not say which."""
    if system(machine) != "windows":
        return spelled("posix")
    if machine.system.shell:
        shell = machine.system.shell.value
        return spelled("powershell" if shell == "powershell" else "posix" if shell == "posix" else "cmd")
    return f"{spelled('cmd')}   (PowerShell: {spelled('powershell')})"
