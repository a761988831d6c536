"""Numbers and paths as people read them."""

from __future__ import annotations

_STEPS = ("B", "kB", "MB", "GB", "TB")


def size(count: int) -> str:
    """`26.5 MB`: powers of a thousand, three digits."""
    value = float(count)
    for unit in _STEPS:
        if abs(value) < 999.5 or unit == _STEPS[-1]:  # noqa: PLR2004 - what rounds to a thousand is the next unit
            break
        value /= 1000
    if unit == "B":
        return f"{count} B"
    return f"{value:.0f} {unit}" if abs(value) >= 99.95 else f"{value:.1f} {unit}"  # noqa: PLR2004


def file_name(path: str) -> str:
    """The last part of a path as either system writes it."""
    return path.replace("\\", "/").rsplit("/", maxsplit=1)[-1]
