"""Fixes that work: drivers that know the GPU, and toolkits that compile for it and that its driver runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import packages
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.tables import tables
from cuwheel_core.fix import Fix
from cuwheel_core.verdicts import choice, drivers

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.toolkits import Toolkit


# Whether a machine's driver knows its GPU, and how new a driver that does can be.


def newer_driver_fixes(machine: Machine, floor: str | None, cuda: str) -> tuple[Fix, ...]:
    """How to get a newer driver, with the way out that data-centre GPUs have.

    `floor`: None where the table has no number for this CUDA.
    """
    if machine.runs_l4t:
        return (Fix(text="install a JetPack of that CUDA: a Jetson's driver comes with it", changes=("system",)),)
    row = drivers.support_of(machine)
    if floor and row and not drivers.driver_reachable(machine, floor):
        why = f"a newer driver does not help: branch {row.last} is the last for this GPU"
        return (Fix(text=why, changes=("nothing",), rules_out=("driver",)),)
    least = drivers.at_least_knowing_gpu(machine, floor)
    last = f" (branch {row.last} is the last for this GPU)" if row and row.last else ""
    text = f"update the driver to {least or f'that of CUDA {cuda}'} or later{last}"
    newer = Fix(text=text, changes=("driver",), to=least or "")
    if not (machine.product and toolkits.forward_compatible(machine.product) and drivers.knows_gpu(machine)):
        return (newer,)
    package = tables().toolkits.forward_compatibility.package
    return newer, Fix(text=f"install the package {package} of that CUDA beside it", changes=("package",))


def working_toolkits(machine: Machine, on: OperatingSystem) -> tuple[Toolkit, ...]:
    """Toolkits that compile machine code for the machine's GPU and run on its driver, or on one that it can have."""
    able = choice.toolkits_for(machine.capability) if machine.capability else ()
    return tuple(row for row in able if _driver_runs(row, machine, on))


def _driver_runs(toolkit: Toolkit, machine: Machine, on: OperatingSystem) -> bool:
    floor = toolkits.minor_compat_floor(toolkit.major, on)
    if not machine.runs_l4t and floor and not drivers.driver_reachable(machine, floor):
        return False
    if not drivers.knows_gpu(machine):
        return True  # another driver is needed anyway
    if machine.driver and not machine.runs_l4t:
        return floor is None or versions.at_least(machine.driver, floor)
    return machine.driver_cuda is None or versions.major(machine.driver_cuda) >= toolkit.major


def _beside_torch(library: Library, machine: Machine, rows: tuple[Toolkit, ...]) -> tuple[Toolkit, ...]:
    """For an extension of torch, those toolkits that build what loads beside the torch that is there; else all."""
    extends = any(packages.framework_of(soname) == "torch" for soname in library.needed)
    if not (extends and machine.torch_cuda):
        return rows
    return tuple(row for row in rows if row.major == versions.major(machine.torch_cuda))


def rebuild_fixes(library: Library, machine: Machine) -> tuple[Fix, ...]:
    """How to get code for the machine's GPU; none where its GPU is not known."""
    if machine.capability is None:
        return ()
    working = working_toolkits(machine, drivers.system_of(library, machine))
    able = _beside_torch(library, machine, working)
    if not able:
        made = choice.compiled_by(machine.capability)
        reason = f"{made} compiles for it, and not the CUDA of its torch" if made else "no known CUDA compiles for it"
        if made and not working:
            reason = "no CUDA that compiles for it runs on its driver"
        return (Fix(text=f"take a release that has code for this GPU: {reason}", changes=("release",)),)
    name = choice.capability_in_toolkit(able[-1], machine.capability)
    named = choice.compiled_by(
        machine.capability, (row for row in able if choice.capability_in_toolkit(row, name) == name)
    )
    spelled = f"CMAKE_CUDA_ARCHITECTURES='…;{name.number}', TORCH_CUDA_ARCH_LIST='… {name}'"
    return (
        Fix(text=f"build it for this GPU too, with {named}: {spelled}", changes=("build",)),
        Fix(text="take a release that has it", changes=("release",)),
    )


def older_build_fixes(library: Library, machine: Machine) -> tuple[Fix, ...]:
    """A build by an older CUDA major that the machine's driver runs; none where there can be none."""
    needed = drivers.runtime_cuda(library)  # what the driver is too old for, which its device code need not be of
    able = _beside_torch(library, machine, working_toolkits(machine, drivers.system_of(library, machine)))
    older = [row for row in able if needed and row.major < versions.major(needed)]
    if not (older and machine.capability and drivers.knows_gpu(machine)):
        return ()
    text = f"take a build by {choice.compiled_by(machine.capability, older)}"
    return (Fix(text=text, changes=("release",), to=older[0].version),)


def its_cuda_can_build(library: Library, machine: Machine) -> bool:
    """Whether the CUDA major that built a library also compiles for the machine's GPU, and its drivers run that."""
    major = drivers.cuda_major(library)
    if major is None or machine.capability is None:
        return True
    floor = toolkits.runtime_floor(str(major), drivers.system_of(library, machine))
    built = any(row.major == major for row in choice.releases_for(machine.capability))
    return built and (floor is None or drivers.driver_reachable(machine, floor))
