"""What the public index accepts of uploads."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class UploadIndex(Struct, frozen=True, kw_only=True):
    """`largest`: bytes of a file, unless the index raised it for a project; `largest_project`: of all its files.

    `days`: after which a release takes no further files. `platforms`: tags, as regular expressions.
    """

    name: str
    local_versions: bool
    variants: bool
    normalised_names: bool
    days: int
    largest: int
    largest_project: int
    platforms: tuple[str, ...]
    source: tuple[str, ...]


class Identity(Struct, frozen=True, kw_only=True):
    """Who can attest a file. `variable`: set where a job may ask for an identity.

    `pattern`: of its name in a certificate; what its groups match are the claims of a bundle's publisher.
    """

    kind: str
    variable: str
    pattern: str
    source: tuple[str, ...]


class Indexes(Struct, frozen=True, kw_only=True):
    """indexes.toml."""

    sources: dict[str, Source]
    public: UploadIndex
    identity: tuple[Identity, ...]
