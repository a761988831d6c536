"""What manylinux tags promise."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ManylinuxPolicy:
    """From the tag of this glibc on: the newest symbol versions of libstdc++ that may be needed."""

    glibc: str
    glibcxx: str
    cxxabi: str
    source: tuple[str, ...]
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manylinux:
    """manylinux.toml."""

    sources: dict[str, Source]
    policy: tuple[ManylinuxPolicy, ...]
