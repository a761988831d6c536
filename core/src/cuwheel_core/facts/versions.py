"""Dotted versions as drivers, toolkits and compilers write them."""

from __future__ import annotations

import re
from functools import lru_cache

from cuwheel_core.support import bounded
from cuwheel_core.support.patterns import lazy_pattern

_DIGITS = lazy_pattern(r"\d+", re.ASCII)
_LOCAL = lazy_pattern(r"[-+]")  # what follows is a build or a local version, and does not order


@lru_cache(maxsize=4096)  # a table's own versions are compared with over and over
def key(version: str) -> tuple[int, ...]:
    """For comparing: `580.65.06` → (580, 65, 6). Trailing zeros do not count, so 13 equals 13.0."""
    parts = [bounded.digits(part) for part in _DIGITS.findall(_LOCAL.split(version, maxsplit=1)[0])]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def at_least(version: str, floor: str) -> bool:
    return key(version) >= key(floor)


def minor(version: str) -> str:
    """The first two parts: `13.0.88` → `13.0`."""
    return ".".join(([*version.split("."), "0"])[:2])


def major(version: str) -> int:
    """The first part; 0 of a text that is no version, as somebody's file may have."""
    return (*key(version), 0)[0]
