"""`name==version`: told from a file, and downloaded where it is meant."""

from __future__ import annotations

import re
from pathlib import Path

_PINNED = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9.!+_-]+")


def is_pinned(target: str) -> bool:
    return bool(_PINNED.fullmatch(target))


def on_disk(target: str | Path, platform: str | None = None, python: str | None = None) -> str | Path:
    """`name==version` as the wheel downloaded for it; everything else as it is."""
    if not isinstance(target, str) or not is_pinned(target) or Path(target).exists():
        return target
    from cuwheel.device_code import index  # noqa: PLC0415 - the network, for this alone

    return index.wheel_of(target, platform=platform, python=python)
