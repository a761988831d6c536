"""What a driver or a platform can do for a library.

Whether the driver knows the GPU; whether it runs the library's CUDA major, compiles its PTX and reads its compression;
servers and Jetsons, which were two distributions of CUDA for arm64 until there was one; desktop code on a Tegra.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import cuda_libraries, gpus, toolkits, versions
from cuwheel_core.facts.tables import tables
from cuwheel_core.verdicts import choice
from cuwheel_core.verdicts.condition import Condition, condition
from cuwheel_core.verdicts.device import Device

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.facts.arch import Arch
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.gpus import DriverSupport
    from cuwheel_core.facts.rows.toolkits import Release
    from cuwheel_core.verdicts.choice import Loader


# Whether a machine's driver knows its GPU, and how new a driver that does can be.

# `too-old`: a later driver was the first to know the GPU. `too-new`: support for it has ended.
AnyDevice = TypeVar("AnyDevice", bound=Device)
GpuState: TypeAlias = Literal["known", "too-old", "too-new", "open"]


def support_of(machine: Device) -> DriverSupport | None:
    """How long drivers support the machine's GPU; None where nobody has said.

    A Jetson's driver comes with L4T and always fits.
    """
    if machine.capability is None or machine.runs_l4t:
        return None
    try:
        return gpus.driver_support(gpus.current_capability(machine.capability))
    except UnknownNameError:
        return None


def gpu_state(machine: Device, on: OperatingSystem) -> GpuState:
    """`open` where the driver is not known, or the table does not know the GPU."""
    row = support_of(machine)
    if machine.gpu_seen or row is None:
        return "known" if machine.gpu_seen else "open"
    oldest, newest = _driver_range(machine, on)
    if newest is not None and not versions.at_least(newest, row.first):
        return "too-old"
    if oldest is not None and row.dropped and versions.at_least(oldest, row.dropped):
        return "too-new"
    return "known" if machine.driver else "open"


def _driver_range(machine: Device, on: OperatingSystem) -> tuple[str | None, str | None]:
    """The oldest and the newest that its driver can be; by its CUDA, its number lies between those of two toolkits."""
    if machine.driver or not machine.driver_cuda:
        return machine.driver, machine.driver
    rows = toolkits.all_releases()
    came_for = [row for row in rows if versions.at_least(machine.driver_cuda, row.version)]
    newer = rows[len(came_for) :]
    after = newer[0].driver.on(on) if newer else None
    return (came_for[-1].driver.on(on) if came_for else None), (str(versions.major(after) - 1) if after else None)


def driver_reachable(machine: Device, driver: str) -> bool:
    """Whether there are drivers that are at least this new and know the GPU."""
    row = support_of(machine)
    return row is None or row.dropped is None or not versions.at_least(driver, row.dropped)


def at_least_knowing_gpu(machine: Device, driver: str | None) -> str | None:
    """The driver, or the first that knows the GPU if that is newer."""
    row = support_of(machine)
    if row is None or (driver and versions.at_least(driver, row.first)):
        return driver
    return row.first


def unlisted_before(machine: Device, on: OperatingSystem) -> str | None:
    """The release whose list names the GPU first, if the driver's own does not; on Windows that is not known."""
    if not (machine.gpu and machine.driver) or machine.gpu_seen or on == "windows" or gpu_state(machine, on) != "known":
        return None
    try:
        name = gpus.find_gpu(machine.gpu).name
    except UnknownNameError:
        return None
    return gpus.unlisted_before(name, machine.driver)


def gpu_conditions(machine: Device, *, above: str | None) -> Iterator[Condition]:
    """What must hold of a driver that is not known. `above`: what it must be for other reasons."""
    row = support_of(machine)
    if row is None or machine.gpu_seen or machine.driver or machine.driver_cuda:
        return
    if above is None or not versions.at_least(above, row.first):
        yield condition("driver-at-least", version=row.first, purpose="gpu")
    if row.last:
        yield condition("driver-at-most", version=row.last)


# What the driver can do for a library: run its CUDA major, compile its PTX, read its compression.


def loader_of(library: Library, machine: Device) -> Loader | None:
    """The machine's GPU as the choice of code goes by it; None where its capability is not known."""
    found = choice.loader_of(machine)
    return replace(found, ptx_isa=ptx_isa(machine, system_of(library, machine))) if found else None


def system_of(library: Library, machine: Device) -> OperatingSystem:
    """The machine's; where that is not known, the only one that the library can run on."""
    return machine.os or ("windows" if library.format == "pe" else "linux")


def cuda_major(library: Library) -> int | None:
    """The CUDA of the runtime that a library was linked with; failing that, of the toolkit that wrote its code."""
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
    return {name: majors[0] for name in library.needed if len(majors := cuda_libraries.library_majors(name)) == 1}


def ptx_isa(machine: Device, on: OperatingSystem) -> str | None:
    """The newest PTX that the driver compiles: that of the newest toolkit it came for. None: not known."""
    row = _newest_known(machine, on)
    return row.ptx_isa if row else None


def cuda_of_driver(machine: Device, on: OperatingSystem) -> str | None:
    """The CUDA that the driver came for, or the newest that it is known to have come for. None: not known."""
    row = _newest_known(machine, on)
    return machine.driver_cuda or (row.version if row else None)


def newer_toolkits(library: Library, machine: Device) -> tuple[str, ...]:
    """Those that wrote cubins of the library and are newer than the driver: it runs such, but it cannot link them.

    All of them where the driver is not known.
    """
    known = cuda_of_driver(machine, system_of(library, machine))
    return tuple(each for each in library.toolkits if known is None or not versions.at_least(known, each))


def link_condition(toolkit: str, on: OperatingSystem) -> Condition:
    """What a driver must be to link objects that this toolkit wrote."""
    row = _first_as_new(toolkit)
    if row is None:
        return condition("driver-at-least", cuda=(toolkit,), purpose="link")
    return condition("driver-at-least", version=row.driver.on(on) or "", cuda=(row.version,), purpose="link")


def _newest_known(machine: Device, on: OperatingSystem) -> Release | None:
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


def floor_of(library: Library, machine: Device) -> str | None:
    """The driver from which on its CUDA runtime works; None where it has no runtime, or nobody has said."""
    needed = runtime_cuda(library)
    return None if needed is None or machine.runs_l4t else toolkits.runtime_floor(needed, system_of(library, machine))


def below_floor(library: Library, machine: Device) -> bool:
    """Whether the driver is known to be too old for the library's runtime, or every one for its GPU is: error 35."""
    needed = runtime_cuda(library)
    if needed is None:
        return False
    floor = floor_of(library, machine)
    if floor and not driver_reachable(machine, floor):
        return True
    if machine.driver and floor:
        return not toolkits.reaches(machine.driver, floor)
    return machine.driver_cuda is not None and not versions.at_least(machine.driver_cuda, needed)


def floor_condition(library: Library, machine: Device) -> Condition | None:
    """What must hold of a driver that is not known."""
    needed = runtime_cuda(library)
    if needed is None or machine.driver or machine.driver_cuda:
        return None
    return condition("driver-at-least", version=floor_of(library, machine) or "", cuda=(needed,))


def zstd_floor(library: Library, machine: Device) -> str | None:
    """The driver that reads its ZSTD-compressed code; None where its CUDA major needs a newer one anyway."""
    floor = toolkits.zstd_floor(system_of(library, machine))
    if floor is None or machine.runs_l4t:
        return None
    minimum = floor_of(library, machine)
    return None if minimum and versions.at_least(minimum, floor) else floor


def below_zstd_floor(library: Library, machine: Device) -> bool:
    floor = zstd_floor(library, machine)
    if floor is None:
        return False
    if machine.driver:
        return not toolkits.reaches(machine.driver, floor)
    came_with = toolkits.driver_cuda(floor, system_of(library, machine))
    if not machine.driver_cuda or came_with is None:
        return False
    return not versions.at_least(machine.driver_cuda, came_with.version)


def isa_condition(isa: str, on: OperatingSystem) -> Condition:
    """What a driver must be to compile PTX of this ISA."""
    row = _first_with_isa(isa)
    if row is None:
        return condition("driver-at-least", isa=isa, purpose="ptx")
    return condition("driver-at-least", version=row.driver.on(on) or "", cuda=(row.version,), isa=isa, purpose="ptx")


def linker_condition(isa: str) -> Condition:
    """What nvJitLink must be to link PTX of this ISA, or the LTO-IR beside it."""
    cuda = cuda_of_isa(isa)
    return condition("nvjitlink-at-least", cuda=(cuda,) if cuda else (), isa=isa)


def cuda_of_isa(isa: str) -> str | None:
    """The first toolkit that writes, and whose driver compiles, PTX of this ISA."""
    row = _first_with_isa(isa)
    return row.version if row else None


def _first_with_isa(isa: str) -> Release | None:
    return next((each for each in toolkits.all_releases() if versions.at_least(each.ptx_isa, isa)), None)


def _first_as_new(cuda: str) -> Release | None:
    return next((each for each in toolkits.all_releases() if versions.at_least(each.version, cuda)), None)


def once_updated(library: Library, machine: AnyDevice) -> AnyDevice:
    """The machine with a driver that runs the library's CUDA and knows its GPU: what would stand in the way then.

    That is the oldest that will do, or the last that knows the GPU: a version, or a branch alone.
    """
    known = gpu_state(machine, system_of(library, machine))
    if known in ("known", "open") and not below_floor(library, machine):
        return machine
    floor, support = floor_of(library, machine), support_of(machine)
    if floor and not driver_reachable(machine, floor):
        wanted = None
    elif known == "too-new" and support:
        wanted = support.last
    else:
        wanted = at_least_knowing_gpu(machine, floor)
    return replace(machine, driver=wanted, driver_cuda=None)


def driver_in_words(machine: Device) -> str:
    if machine.driver is None:
        return f"a driver of CUDA {machine.driver_cuda}"
    return f"driver {machine.driver}" if "." in machine.driver else f"branch {machine.driver} of the driver"


def driver_for(cuda: str, on: OperatingSystem) -> str | None:
    """The driver that came with a toolkit, or with the first that is as new; None: not known."""
    row = _first_as_new(cuda)
    return row.driver.on(on) if row else None


# Servers and Jetsons: two distributions of CUDA for arm64, until there was one; and desktop code on a Tegra.


def wrong_distribution(library: Library, machine: Device) -> bool:
    """A build for servers on a Jetson, from before there was one distribution for both; or the reverse."""
    if library.platform is None or one_distribution(library):
        return False
    if library.platform.name == "sbsa":
        return machine.runs_l4t
    return (
        machine.cpu == "aarch64" and not machine.runs_l4t and machine.capability is not None and not is_tegra(machine)
    )


def one_distribution(library: Library) -> bool:
    major = cuda_major(library)
    return major is not None and major >= versions.major(tables().toolkits.arm64.one_distribution_since)


def unconfirmed_on_tegra(library: Library, machine: Device) -> bool:
    """A server build of the one distribution, on a Tegra that it is not known to serve.

    Where it depends on an L4T that was not told, that is a condition: the code itself is known.
    """
    told = machine.l4t is not None or toolkits.joined_arm64(machine.capability) is None
    return told and needs_newer_l4t(library, machine)


def needs_newer_l4t(library: Library, machine: Device) -> bool:
    """Whether a server build runs on this Jetson only with an L4T that it is not known to have."""
    if library.platform is None or library.platform.name != "sbsa" or not machine.runs_l4t:
        return False
    if not one_distribution(library):
        return False
    row = toolkits.joined_arm64(machine.capability)
    if row is None:
        return True
    # Thor never ran anything older: what its L4T is does not matter.
    first = versions.at_least(tables().toolkits.arm64.one_distribution_since, row.cuda)
    return not first and not (machine.l4t and versions.at_least(machine.l4t, row.l4t))


def before_joining(library: Library, machine: Device) -> str | None:
    """The CUDA of a server build of the one distribution, where this Jetson joined that with a later one; else None.

    The oldest that wrote its code: what was grafted in later does not tell what the library was linked with.
    """
    row = toolkits.joined_arm64(machine.capability)
    is_server_build = library.platform is not None and library.platform.name == "sbsa"
    if row is None or not (is_server_build and machine.runs_l4t and one_distribution(library)):
        return None
    written_by = [each for each in library.toolkits if versions.major(each) == cuda_major(library)]
    oldest = min(written_by, key=versions.key, default=None)
    return None if oldest is None or versions.at_least(oldest, row.cuda) else oldest


def jetpack_condition(machine: Device) -> Condition | None:
    """What must be installed on a Jetson for the one distribution to serve it; None where nobody has said."""
    row = toolkits.joined_arm64(machine.capability)
    if row is None:
        return None
    package = row.compat.format(major=versions.major(row.cuda), minor="x") if row.compat else ""
    return condition("jetpack-at-least", version=row.jetpack, l4t=row.l4t, package=package)


def jetpack_needed(machine: Device) -> str:
    """What must be installed on a Jetson for the one distribution to serve it, in words; empty: nobody has said."""
    needed = jetpack_condition(machine)
    return needed.short if needed else ""


def is_tegra(machine: Device) -> bool:
    return machine.capability is not None and gpus.is_tegra(machine.capability)


def across_tegra(arch: Arch, machine: Device) -> bool:
    """Machine code of a desktop part on a Tegra of the same major, or the reverse: NVIDIA promises nothing."""
    if machine.capability is None or arch.kind != "sm":
        return False
    return gpus.is_tegra(arch.capability) != is_tegra(machine)


def platform_conditions(library: Library, machine: Device) -> Iterator[Condition]:
    """What must hold of a Jetson that the one distribution of CUDA for arm64 may not serve."""
    if needs_newer_l4t(library, machine):
        since = str(toolkits.one_arm64_since())
        yield jetpack_condition(machine) or condition("server-code-on-jetson", cuda=(since,))
    row = toolkits.joined_arm64(machine.capability)
    if row and (built := before_joining(library, machine)):
        yield condition("server-code-on-jetson", built=built, cuda=(row.cuda,))


def knows_gpu(machine: Device) -> bool:
    return gpu_state(machine, machine.os or "linux") not in ("too-old", "too-new")
