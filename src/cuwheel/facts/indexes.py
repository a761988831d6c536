"""What indexes accept that take uploads."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.indexes import UploadIndex


def find_upload(host: str) -> UploadIndex | None:
    """By the host that takes the uploads; None for one of which nothing is known beforehand."""
    return next((row for row in tables().indexes.upload if host.lower() in row.hosts), None)


def takes_platform(index: UploadIndex, tag: str) -> bool:
    return any(fnmatchcase(tag, pattern) for pattern in index.platforms)
