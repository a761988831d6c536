"""What installers know of wheel variants."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class Provider(Struct, frozen=True, kw_only=True):
    """A provider of properties, the names of its features, and the values that it knows: see variants.toml."""

    namespace: str
    requires: str
    plugin_api: str
    lower_bound: str
    upper_bound: str
    arch: str
    cuda_majors: tuple[int, int]
    capability_majors: tuple[int, int]
    source: tuple[str, ...]


class Variants(Struct, frozen=True, kw_only=True):
    """variants.toml."""

    sources: dict[str, Source]
    checked: str
    schema: str
    provider: Provider
