"""What a GPU asks of the machine that it is in."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import OperatingSystem, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSupport:
    """The branches of the driver that know GPUs of these capabilities: see gpu_drivers.toml."""

    capabilities: tuple[str, ...]
    first: str
    source: tuple[str, ...]
    last: str | None = None
    dropped: str | None = None
    pci: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The first release of each branch whose own list names these GPUs, on Linux."""

    names: tuple[str, ...]
    since: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The processor, and where there is only one the system, that these GPUs come with."""

    names: tuple[str, ...]
    cpu: str
    source: tuple[str, ...]
    os: OperatingSystem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDrivers:
    """gpu_drivers.toml."""

    sources: dict[str, Source]
    support: tuple[DriverSupport, ...]
    listed: tuple[Listed, ...]
    host: tuple[Host, ...]
