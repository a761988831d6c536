"""Whether a machine's driver knows its GPU, and how new a driver that does can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from cuwheel.errors import UnknownNameError
from cuwheel.facts import architectures, gpu_drivers, gpus, toolkits, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.facts.rows.common import OperatingSystem
    from cuwheel.facts.rows.gpu_drivers import DriverSupport
    from cuwheel.machine.fleet import Machine

# `too-old`: a later driver was the first to know the GPU. `too-new`: support for it has ended.
State: TypeAlias = Literal["known", "too-old", "too-new", "open"]


def support_of(machine: Machine) -> DriverSupport | None:
    """None where nobody has said; a Jetson's driver comes with L4T and always fits."""
    if machine.capability is None or machine.runs_l4t:
        return None
    try:
        return gpu_drivers.support(architectures.current(machine.capability))
    except UnknownNameError:
        return None


def state(machine: Machine, on: OperatingSystem) -> State:
    """`open` where the driver is not known, or the table does not know the GPU."""
    row = support_of(machine)
    if machine.gpu_seen or row is None:
        return "known" if machine.gpu_seen else "open"
    oldest, newest = _drivers(machine, on)
    if newest is not None and not versions.at_least(newest, row.first):
        return "too-old"
    if oldest is not None and row.dropped and versions.at_least(oldest, row.dropped):
        return "too-new"
    return "known" if machine.driver else "open"


def _drivers(machine: Machine, on: OperatingSystem) -> tuple[str | None, str | None]:
    """The oldest and the newest that its driver can be; by its CUDA, its number lies between those of two toolkits."""
    if machine.driver or not machine.driver_cuda:
        return machine.driver, machine.driver
    rows = toolkits.all_releases()
    came_for = [row for row in rows if versions.at_least(machine.driver_cuda, row.version)]
    newer = rows[len(came_for) :]
    after = newer[0].driver.on(on) if newer else None
    return (came_for[-1].driver.on(on) if came_for else None), (str(versions.major(after) - 1) if after else None)


def reachable(machine: Machine, driver: str) -> bool:
    """Whether there are drivers that are at least this new and know the GPU."""
    row = support_of(machine)
    return row is None or row.dropped is None or not versions.at_least(driver, row.dropped)


def at_least_known(machine: Machine, driver: str | None) -> str | None:
    """The driver, or the first that knows the GPU if that is newer."""
    row = support_of(machine)
    if row is None or (driver and versions.at_least(driver, row.first)):
        return driver
    return row.first


def unlisted_before(machine: Machine, on: OperatingSystem) -> str | None:
    """The release whose list names the GPU first, if the driver's own does not; on Windows that is not known."""
    if not (machine.gpu and machine.driver) or machine.gpu_seen or on == "windows" or state(machine, on) != "known":
        return None
    try:
        name = gpus.find_gpu(machine.gpu).name
    except UnknownNameError:
        return None
    return gpu_drivers.unlisted_before(name, machine.driver)


def conditions(machine: Machine, *, above: str | None) -> Iterator[str]:
    """What must hold of a driver that is not known. `above`: what it must be for other reasons."""
    row = support_of(machine)
    if row is None or machine.gpu_seen or machine.driver or machine.driver_cuda:
        return
    if above is None or not versions.at_least(above, row.first):
        yield f"driver {row.first} or later, the first to support this GPU"
    if row.last:
        yield f"a driver of branch {row.last} or older: {row.last} is the last to support this GPU"
