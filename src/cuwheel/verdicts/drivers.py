"""What a machine's driver can do for a library: run its CUDA major, compile its PTX, read its compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.facts import libraries, toolkits, versions
from cuwheel.verdicts import entries, gpu_support

if TYPE_CHECKING:
    from cuwheel.device_code.libraries import Library
    from cuwheel.facts.rows.common import OperatingSystem
    from cuwheel.facts.rows.toolkits import Release
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.choose import Device


def device_of(library: Library, machine: Machine) -> Device | None:
    """The machine's GPU as the choice of code goes by it; None where its capability is not known."""
    found = entries.device(machine)
    return replace(found, ptx_isa=ptx_isa(machine, system(library, machine))) if found else None


def system(library: Library, machine: Machine) -> OperatingSystem:
    """The machine's; where that is not known, the only one that the library can run on."""
    return machine.os or ("windows" if library.format == "pe" else "linux")


def cuda_major(library: Library) -> int | None:
    """Of the CUDA runtime that it was linked with; failing that, of the toolkit that wrote its code."""
    if library.cudart and library.cudart.major:
        return library.cudart.major
    majors = {versions.major(each) for each in library.toolkits}
    return max(majors) if majors else None


def runtime_cuda(library: Library) -> str | None:
    """The CUDA that a driver must at least be of to run its CUDA runtime: `12`, but `10.1` before majors were enough.

    Of a library without one, that of CUDA's own libraries that it needs: they have a runtime of that CUDA inside.
    None where it has neither, or none whose CUDA is known.
    """
    if library.cudart is None:
        needed = max(needed_libraries(library).values(), default=None)
        return toolkits.oldest_running(f"{needed}.0") if needed else None
    major = cuda_major(library)
    if major is None:
        return None
    if library.cudart.minor is not None:
        return toolkits.oldest_running(f"{major}.{library.cudart.minor}")
    written_by = [each for each in library.toolkits if versions.major(each) == major]
    return toolkits.oldest_running(max(written_by, key=versions.key, default=f"{major}.0"))


def needed_libraries(library: Library) -> dict[str, int]:
    """CUDA's own libraries that it is linked with and that are of one CUDA major alone, with that."""
    return {name: majors[0] for name in library.needed if len(majors := libraries.majors(name)) == 1}


def ptx_isa(machine: Machine, on: OperatingSystem) -> str | None:
    """The newest PTX that the driver compiles: that of the newest toolkit it came for. None: not known."""
    row = _newest_known(machine, on)
    return row.ptx_isa if row else None


def cuda(machine: Machine, on: OperatingSystem) -> str | None:
    """The CUDA that the driver came for, or the newest that it is known to have come for. None: not known."""
    row = _newest_known(machine, on)
    return machine.driver_cuda or (row.version if row else None)


def newer_toolkits(library: Library, machine: Machine) -> tuple[str, ...]:
    """Those that wrote cubins of the library and are newer than the driver: it runs such, but it cannot link them.

    All of them where the driver is not known.
    """
    known = cuda(machine, system(library, machine))
    return tuple(each for each in library.toolkits if known is None or not versions.at_least(known, each))


def link_condition(toolkit: str, on: OperatingSystem) -> str:
    """What a driver must be to link objects that this toolkit wrote."""
    row = _first_as_new(toolkit)
    return f"{_driver_of(row, on) if row else f'a driver of CUDA {toolkit} or later'}, to link its objects"


def _driver_of(row: Release, on: OperatingSystem) -> str:
    driver = row.driver.on(on)
    return f"driver {driver} or later (CUDA {row.version})" if driver else f"a driver of CUDA {row.version} or later"


def _newest_known(machine: Machine, on: OperatingSystem) -> Release | None:
    rows = toolkits.all_releases()
    if machine.driver_cuda:
        reached = [row for row in rows if versions.at_least(machine.driver_cuda, row.version)]
        return reached[-1] if reached else rows[0]
    if not machine.driver or machine.runs_l4t:  # a Jetson's driver is numbered otherwise and comes with L4T
        return None
    row = toolkits.driver_cuda(machine.driver, on) or rows[0]
    newer = rows[rows.index(row) + 1 :]
    # The drivers of later toolkits are not in the table: this one may be of one of them.
    return None if newer and newer[0].driver.on(on) is None else row


def floor_of(library: Library, machine: Machine) -> str | None:
    """The driver from which on its CUDA runtime works; None where it has no runtime, or nobody has said."""
    needed = runtime_cuda(library)
    return None if needed is None or machine.runs_l4t else toolkits.runtime_floor(needed, system(library, machine))


def below_floor(library: Library, machine: Machine) -> bool:
    """Whether the driver is known to be too old for the library's runtime, or every one for its GPU is: error 35."""
    needed = runtime_cuda(library)
    if needed is None:
        return False
    floor = floor_of(library, machine)
    if floor and not gpu_support.reachable(machine, floor):
        return True
    if machine.driver and floor:
        return not toolkits.reaches(machine.driver, floor)
    return machine.driver_cuda is not None and not versions.at_least(machine.driver_cuda, needed)


def floor_condition(library: Library, machine: Machine) -> str | None:
    """What must hold of a driver that is not known."""
    needed = runtime_cuda(library)
    if needed is None or machine.driver or machine.driver_cuda:
        return None
    if floor := floor_of(library, machine):
        return f"driver {floor} or later (CUDA {needed})"
    return f"a driver of CUDA {needed} or later"


def zstd_floor(library: Library, machine: Machine) -> str | None:
    """The driver that reads its ZSTD-compressed code; None where its CUDA major needs a newer one anyway."""
    floor = toolkits.zstd_floor(system(library, machine))
    if floor is None or machine.runs_l4t:
        return None
    minimum = floor_of(library, machine)
    return None if minimum and versions.at_least(minimum, floor) else floor


def below_zstd_floor(library: Library, machine: Machine) -> bool:
    floor = zstd_floor(library, machine)
    if floor is None:
        return False
    if machine.driver:
        return not toolkits.reaches(machine.driver, floor)
    came_with = toolkits.driver_cuda(floor, system(library, machine))
    if not machine.driver_cuda or came_with is None:
        return False
    return not versions.at_least(machine.driver_cuda, came_with.version)


def isa_condition(isa: str, on: OperatingSystem) -> str:
    """What a driver must be to compile PTX of this ISA."""
    row = _first_with_isa(isa)
    if row is None:
        return f"a driver that compiles PTX ISA {isa}"
    return f"{_driver_of(row, on)}, to compile its PTX (ISA {isa})"


def linker_condition(isa: str) -> str:
    """What nvJitLink must be to link PTX of this ISA, or the LTO-IR beside it."""
    return f"nvJitLink of CUDA {cuda_of_isa(isa) or 'that release'} or later, which links its PTX (ISA {isa})"


def cuda_of_isa(isa: str) -> str | None:
    """The first toolkit that writes, and whose driver compiles, PTX of this ISA."""
    row = _first_with_isa(isa)
    return row.version if row else None


def _first_with_isa(isa: str) -> Release | None:
    return next((each for each in toolkits.all_releases() if versions.at_least(each.ptx_isa, isa)), None)


def _first_as_new(cuda: str) -> Release | None:
    return next((each for each in toolkits.all_releases() if versions.at_least(each.version, cuda)), None)


def once_updated(library: Library, machine: Machine) -> Machine:
    """The machine with a driver that runs the library's CUDA and knows its GPU: what would stand in the way then.

    That is the oldest that will do, or the last that knows the GPU: a version, or a branch alone.
    """
    known = gpu_support.state(machine, system(library, machine))
    if known in ("known", "open") and not below_floor(library, machine):
        return machine
    floor, support = floor_of(library, machine), gpu_support.support_of(machine)
    if floor and not gpu_support.reachable(machine, floor):
        wanted = None
    elif known == "too-new" and support:
        wanted = support.last
    else:
        wanted = gpu_support.at_least_known(machine, floor)
    return replace(machine, driver=wanted, driver_cuda=None)


def named(machine: Machine) -> str:
    """The driver in words."""
    if machine.driver is None:
        return f"a driver of CUDA {machine.driver_cuda}"
    return f"driver {machine.driver}" if "." in machine.driver else f"branch {machine.driver} of the driver"


def driver_for(cuda: str, on: OperatingSystem) -> str | None:
    """The driver that came with a toolkit, or with the first that is as new; None: not known."""
    row = _first_as_new(cuda)
    return row.driver.on(on) if row else None
