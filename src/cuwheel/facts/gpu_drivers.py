"""Which drivers know a GPU, and which processor it comes with."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from cuwheel.facts import versions
from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.arch import Capability
    from cuwheel.facts.rows.gpu_drivers import DriverSupport, Host


@lru_cache(maxsize=256)
def support(capability: Capability) -> DriverSupport | None:
    """The branches that know GPUs of a capability; None where the table has no row, as for Tegra."""
    return next((row for row in tables().gpu_drivers.support if capability in row.capabilities), None)


def support_by_pci(device: str) -> DriverSupport | None:
    """The same for `10de:2b85`, where the id alone tells it."""
    number = device.rpartition(":")[2].lower()
    return next((row for row in tables().gpu_drivers.support if number.startswith(row.pci or ("-",))), None)


def unlisted_before(gpu: str, driver: str) -> str | None:
    """The release whose list names a GPU first, if a Linux driver's own does not name it; None if it does."""
    row = next((row for row in tables().gpu_drivers.listed if gpu in row.names), None)
    if row is None:
        return None
    own = [each for each in row.since if versions.major(each) == versions.major(driver)]
    first = own[0] if own else row.since[0]
    return None if versions.at_least(driver, first) else first


def host_of(gpu: str) -> Host | None:
    """The processor that a GPU is soldered to; None for those that any machine may have."""
    return next((row for row in tables().gpu_drivers.host if gpu in row.names), None)
