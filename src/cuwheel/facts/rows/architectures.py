"""Compute capabilities."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A capability: its generation, and the capabilities that its `f` code serves."""

    capability: str
    generation: str
    source: tuple[str, ...]
    tegra: bool = False
    family: tuple[str, ...] = ()
    renamed_to: str | None = None
    desktop_code: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures:
    """architectures.toml."""

    sources: dict[str, Source]
    architecture: tuple[Architecture, ...]
