"""What the public index accepts of uploads."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.indexes import UploadIndex


def public() -> UploadIndex:
    return tables().indexes.public


def takes_platform(index: UploadIndex, tag: str) -> bool:
    return any(fnmatchcase(tag, pattern) for pattern in index.platforms)
