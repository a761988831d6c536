"""Fixes that work: drivers that know the GPU, and toolkits that compile for it and that its driver runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import packages, toolkits, versions
from cuwheel.facts.tables import tables
from cuwheel.verdicts import drivers, gpu_support, targets

if TYPE_CHECKING:
    from cuwheel.device_code.libraries import Library
    from cuwheel.facts.rows.common import OperatingSystem
    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.machine.fleet import Machine


def newer_driver(machine: Machine, floor: str | None, cuda: str) -> str:
    """With the way out that data-centre GPUs have. `floor`: None where the table has no number for this CUDA."""
    if machine.runs_l4t:
        return "install a JetPack of that CUDA: a Jetson's driver comes with it"
    row = gpu_support.support_of(machine)
    if floor and row and not gpu_support.reachable(machine, floor):
        return f"a newer driver does not help: branch {row.last} is the last for this GPU"
    fix = f"update the driver to {gpu_support.at_least_known(machine, floor) or f'that of CUDA {cuda}'} or later"
    if row and row.last:
        fix += f" (branch {row.last} is the last for this GPU)"
    if machine.product and toolkits.forward_compatible(machine.product) and _knows_gpu(machine):
        fix += f", or install the package {tables().toolkits.forward_compatibility.package} of that CUDA beside it"
    return fix


def _knows_gpu(machine: Machine) -> bool:
    return gpu_support.state(machine, machine.os or "linux") not in ("too-old", "too-new")


def compilers(machine: Machine, on: OperatingSystem) -> tuple[Toolkit, ...]:
    """Toolkits that compile machine code for the machine's GPU and run on its driver, or on one that it can have."""
    return tuple(row for row in _compiling(machine) if _runs(row, machine, on))


def _compiling(machine: Machine) -> tuple[Toolkit, ...]:
    return targets.toolkits_for(machine.capability) if machine.capability else ()


def _runs(toolkit: Toolkit, machine: Machine, on: OperatingSystem) -> bool:
    floor = toolkits.minor_compat_floor(toolkit.major, on)
    if not machine.runs_l4t and floor and not gpu_support.reachable(machine, floor):
        return False
    if not _knows_gpu(machine):
        return True  # another driver is needed anyway
    if machine.driver and not machine.runs_l4t:
        return floor is None or versions.at_least(machine.driver, floor)
    return machine.driver_cuda is None or versions.major(machine.driver_cuda) >= toolkit.major


def _beside_torch(library: Library, machine: Machine, rows: tuple[Toolkit, ...]) -> tuple[Toolkit, ...]:
    """Of an extension of torch, those that build what loads beside the torch that is there."""
    extends = any(packages.framework_of(soname) == "torch" for soname in library.needed)
    if not (extends and machine.torch_cuda):
        return rows
    return tuple(row for row in rows if row.major == versions.major(machine.torch_cuda))


def rebuild(library: Library, machine: Machine) -> str:
    """How to get code for the machine's GPU; empty where its GPU is not known."""
    if machine.capability is None:
        return ""
    able = _beside_torch(library, machine, compilers(machine, drivers.system(library, machine)))
    if not able:
        return "take a release that has code for this GPU: no known toolkit builds it for this machine"
    name = targets.called(able[-1], machine.capability)
    named = [row for row in able if targets.called(row, name) == name]
    return (
        f"build it for this GPU too, with {toolkits.span(named)}: CMAKE_CUDA_ARCHITECTURES='…;{name.number}', "
        f"TORCH_CUDA_ARCH_LIST='… {name}', or take a release that has it"
    )


def older_build(library: Library, machine: Machine) -> str:
    """A build by an older CUDA major that the machine's driver runs; empty where there can be none."""
    needed = drivers.runtime_cuda(library)  # what the driver is too old for, which its device code need not be of
    able = _beside_torch(library, machine, compilers(machine, drivers.system(library, machine)))
    older = [row for row in able if needed and row.major < versions.major(needed)]
    return f"take a build by {toolkits.span(older)}" if older and _knows_gpu(machine) else ""


def its_cuda_can_build(library: Library, machine: Machine) -> bool:
    """Whether the CUDA major that built a library also compiles for the machine's GPU, and its drivers run that."""
    major = drivers.cuda_major(library)
    if major is None or machine.capability is None:
        return True
    floor = toolkits.runtime_floor(str(major), drivers.system(library, machine))
    built = any(row.major == major for row in targets.releases_for(machine.capability))
    return built and (floor is None or gpu_support.reachable(machine, floor))
