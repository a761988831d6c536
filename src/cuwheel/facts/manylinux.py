"""What a manylinux tag promises beside the C library's version that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import versions
from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.manylinux import ManylinuxPolicy


def policy_of(glibc: str) -> ManylinuxPolicy | None:
    """The promise of `manylinux_2_28` by its `2.28`; None below the oldest that there is."""
    reached = [row for row in tables().manylinux.policy if versions.at_least(glibc, row.glibc)]
    return reached[-1] if reached else None
