"""What manylinux tags promise."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts import versions
from cuwheel.facts.rows.common import Source


class ManylinuxPolicy(Struct, frozen=True, kw_only=True):
    """From the tag of this glibc on: the newest symbol versions of libstdc++ that may be needed."""

    glibc: str
    glibcxx: str
    cxxabi: str
    source: tuple[str, ...]
    measured: bool = False


class Manylinux(Struct, frozen=True, kw_only=True):
    """manylinux.toml."""

    sources: dict[str, Source]
    policy: tuple[ManylinuxPolicy, ...]

    def policy_of(self, glibc: str) -> ManylinuxPolicy | None:
        """The promise of `manylinux_2_28` by its `2.28`; None below the oldest that there is."""
        reached = [row for row in self.policy if versions.at_least(glibc, row.glibc)]
        return reached[-1] if reached else None
