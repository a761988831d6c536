"""What rows of several tables have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OperatingSystem = Literal["linux", "windows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a row comes from."""

    title: str
    url: str
