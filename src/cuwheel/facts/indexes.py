"""What the public index accepts of uploads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.indexes import Identity, UploadIndex


def public() -> UploadIndex:
    return tables().indexes.public


def identities() -> tuple[Identity, ...]:
    return tables().indexes.identity


def takes_platform(index: UploadIndex, tag: str) -> bool:
    return any(re.fullmatch(pattern, tag, re.ASCII) for pattern in index.platforms)
