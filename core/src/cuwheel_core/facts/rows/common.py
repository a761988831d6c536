"""What rows of several tables have in common."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

OperatingSystem = Literal["linux", "windows"]


class Source(Struct, frozen=True, kw_only=True):
    """Where a row comes from."""

    title: str
    url: str
