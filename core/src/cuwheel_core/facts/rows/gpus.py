"""GPUs, how their names are read, their compute capabilities, and what a GPU asks of the machine that it is in."""

from __future__ import annotations

import re

from msgspec import Struct, field

from cuwheel_core.facts.arch import Capability
from cuwheel_core.facts.rows.common import OperatingSystem, Source


class GpuGroup(Struct, frozen=True, kw_only=True):
    """GPUs of one capability and product line. `tegra`: the chip that a Jetson's device tree names."""

    capability: Capability
    product: str
    names: tuple[str, ...]
    source: tuple[str, ...]
    tegra: str | None = None
    note: str = ""


class AmbiguousName(Struct, frozen=True, kw_only=True):
    name: str
    meanings: tuple[str, ...]
    source: tuple[str, ...]


class BorrowedName(Struct, frozen=True, kw_only=True):
    """Names of real GPUs that virtual ones of other chips go by."""

    names: tuple[str, ...]
    chips: tuple[str, ...]
    source: tuple[str, ...]


class Normalisation(Struct, frozen=True, kw_only=True):
    """How a name is read: see above `[normalisation]` in gpus.toml."""

    ignore: tuple[str, ...]
    brands: tuple[str, ...]
    lines: tuple[str, ...]
    glued: tuple[str, ...]


class VirtualGpus(Struct, frozen=True, kw_only=True):
    """How virtual GPUs are called: see above `[vgpu]` in gpus.toml."""

    profile: str
    letters: str
    boards: dict[str, str]


class Gpus(Struct, frozen=True, kw_only=True):
    """gpus.toml."""

    sources: dict[str, Source]
    checked: str
    normalisation: Normalisation
    vgpu: VirtualGpus
    chips: dict[str, str]
    group: tuple[GpuGroup, ...]
    aliases: dict[str, str] = field(default_factory=dict)
    ambiguous: tuple[AmbiguousName, ...] = ()
    borrowed: tuple[BorrowedName, ...] = ()


def squashed(name: str) -> str:
    """A GPU's name as it is compared: letters and digits only, lower case, without the maker's name."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia")


# Compute capabilities.


class Architecture(Struct, frozen=True, kw_only=True):
    """A capability: its generation, and the capabilities that its `f` code serves."""

    capability: Capability
    generation: str
    source: tuple[str, ...]
    tegra: bool = False
    family: tuple[Capability, ...] = ()
    renamed_to: Capability | None = None
    desktop_code: str = ""
    note: str = ""


class Compiling(Struct, frozen=True, kw_only=True):
    """How fast the driver compiles PTX, in bytes a second. `memory`: what ptxas takes, and for each byte more."""

    slowest: int
    fastest: int
    memory: int
    memory_a_byte: int
    source: tuple[str, ...]


class Architectures(Struct, frozen=True, kw_only=True):
    """architectures.toml."""

    sources: dict[str, Source]
    compiling: Compiling
    architecture: tuple[Architecture, ...]


# What a GPU asks of the machine that it is in.


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
