"""Compute capabilities."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.arch import Capability
from cuwheel.facts.rows.common import Source


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
    """How fast the driver compiles PTX, in bytes a second."""

    slowest: int
    fastest: int
    source: tuple[str, ...]


class Architectures(Struct, frozen=True, kw_only=True):
    """architectures.toml."""

    sources: dict[str, Source]
    compiling: Compiling
    architecture: tuple[Architecture, ...]
