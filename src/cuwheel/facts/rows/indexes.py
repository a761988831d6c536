"""What the public index accepts of uploads."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class UploadIndex(Struct, frozen=True, kw_only=True):
    """`largest`: bytes of a file, unless the index raised it for a project. `platforms`: tags, with `*`."""

    name: str
    local_versions: bool
    variants: bool
    largest: int
    platforms: tuple[str, ...]
    source: tuple[str, ...]


class Indexes(Struct, frozen=True, kw_only=True):
    """indexes.toml."""

    sources: dict[str, Source]
    public: UploadIndex
