"""GPUs and how their names are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGroup:
    """GPUs of one capability and product line. `tegra`: the chip that a Jetson's device tree names."""

    capability: str
    product: str
    names: tuple[str, ...]
    source: tuple[str, ...]
    tegra: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousName:
    name: str
    meanings: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedName:
    """Names of real GPUs that virtual ones of other chips go by."""

    names: tuple[str, ...]
    chips: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """How a name is read: see above `[normalisation]` in gpus.toml."""

    ignore: tuple[str, ...]
    brands: tuple[str, ...]
    lines: tuple[str, ...]
    glued: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualGpus:
    """How virtual GPUs are called: see above `[vgpu]` in gpus.toml."""

    profile: str
    letters: str
    boards: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
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
