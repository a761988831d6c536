"""What a GPU asks of the machine that it is in."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.arch import Capability
from cuwheel.facts.rows.common import OperatingSystem, Source


class DriverSupport(Struct, frozen=True, kw_only=True):
    """The branches of the driver that know GPUs of these capabilities: see gpu_drivers.toml."""

    capabilities: tuple[Capability, ...]
    first: str
    source: tuple[str, ...]
    last: str | None = None
    dropped: str | None = None
    pci: tuple[str, ...] = ()


class Listed(Struct, frozen=True, kw_only=True):
    """The first release of each branch whose own list names these GPUs, on Linux."""

    names: tuple[str, ...]
    since: tuple[str, ...]
    source: tuple[str, ...]


class Host(Struct, frozen=True, kw_only=True):
    """The processor, and where there is only one the system, that these GPUs come with."""

    names: tuple[str, ...]
    cpu: str
    source: tuple[str, ...]
    os: OperatingSystem | None = None


class GpuDrivers(Struct, frozen=True, kw_only=True):
    """gpu_drivers.toml."""

    sources: dict[str, Source]
    support: tuple[DriverSupport, ...]
    listed: tuple[Listed, ...]
    host: tuple[Host, ...]
