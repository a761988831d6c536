"""Compute capabilities."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class Architecture(Struct, frozen=True, kw_only=True):
    """A capability: its generation, and the capabilities that its `f` code serves."""

    capability: str
    generation: str
    source: tuple[str, ...]
    tegra: bool = False
    family: tuple[str, ...] = ()
    renamed_to: str | None = None
    desktop_code: str = ""
    note: str = ""


class Architectures(Struct, frozen=True, kw_only=True):
    """architectures.toml."""

    sources: dict[str, Source]
    architecture: tuple[Architecture, ...]
