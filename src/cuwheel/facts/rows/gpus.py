"""GPUs and how their names are read."""

from __future__ import annotations

import re

from msgspec import Struct, field

from cuwheel.facts.arch import Capability
from cuwheel.facts.rows.common import Source


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
