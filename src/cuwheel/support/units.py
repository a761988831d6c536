"""Numbers and paths as people read them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Thing = TypeVar("Thing")
_MINUTE = 60
_TEN = 10.0
_STEPS = ("B", "kB", "MB", "GB", "TB")
_COLOURS = re.compile(r"\x1b\[[0-9;:]{0,40}[A-Za-z]")
_WRITTEN = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)


def uncoloured(text: str) -> str:
    """What a program printed on a terminal, without its colours."""
    return _COLOURS.sub("", text)


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


def read_size(text: str) -> int | None:
    """`100 MB`, `8GiB` or `4096` in bytes; None if it is not a size."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def lasted(seconds: float) -> str:
    """`0.8 s`, `42 s`, `2 min 5 s`."""
    if round(seconds) >= _MINUTE:
        minutes, rest = divmod(round(seconds), _MINUTE)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{seconds:.1f} s" if seconds < _TEN else f"{seconds:.0f} s"


def file_name(path: str) -> str:
    """The last part of a path as either system writes it; of a root, itself."""
    return path.replace("\\", "/").rstrip("/").rsplit("/", maxsplit=1)[-1] or path


def first_few(
    things: Iterable[Thing], most: int = 5, words: Callable[[Thing], str] = str, *, more: str = "more"
) -> tuple[str, ...]:
    """The first ones, and how many `more`. Only those are put into words: there may be thousands."""
    listed = list(things)
    rest = len(listed) - most
    return (*map(words, listed[:most]), *([f"and {rest:,} {more}"] if rest > 0 else []))


def runs(things: Iterable[Thing], known: Sequence[Thing]) -> list[list[Thing]]:
    """Things that follow each other in `known`, together: `7.5 8.0 8.6`, `12.0`."""
    found: list[list[Thing]] = []
    for each in things:
        if found and known.index(each) == known.index(found[-1][-1]) + 1:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def span(least: float, most: float) -> str:
    """Of seconds, roughly: `about 8 to 29 s`, `about 4 to 15 minutes`."""
    if most < 1:
        return "less than a second"
    unit, length = ("s", 1) if most < 2 * _MINUTE else ("minutes", _MINUTE)
    first, last = max(1, round(least / length)), max(1, round(most / length))
    return f"about {first} to {last} {unit}" if first < last else f"about {last} {unit}"


def some(names: Sequence[str], most: int = 5) -> str:
    """Enough of a list to see what it is about: `a, b and 3 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")
