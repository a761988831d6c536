"""Text for people: with units, and with the name that somebody meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cuwheel_core.support.patterns import lazy_pattern

# Numbers and paths as people read them.

Thing = TypeVar("Thing")
_MINUTE = 60
_TEN = 10.0
_STEPS = ("B", "kB", "MB", "GB", "TB")
_COLOURS = lazy_pattern(r"\x1b\[[0-9;:]{0,40}[A-Za-z]")
_ERROR_NAMES = lazy_pattern(r" \(cudaError\w+\)")
_WRITTEN = lazy_pattern(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)


def uncoloured(text: str) -> str:
    """What a program printed on a terminal, without its colours."""
    return _COLOURS.sub("", text)


def without_error_names(text: str) -> str:
    """`error 209 (cudaErrorNoKernelImageForDevice)` in the room of a line: with its number alone."""
    return _ERROR_NAMES.sub("", text)


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


def counted(count: int, noun: str) -> str:
    """`1 wheel`, `2 wheels`, `2 libraries`, `2 days`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeou" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def percent(share: float, digits: int = 0) -> str:
    """`0.72` as `72 %`: in one way everywhere."""
    return f"{100 * share:.{digits}f} %"


def percent_change(before: float, after: float) -> str:
    """`-37 %`, `+2 %`; from nothing there is none to tell."""
    return f"{100 * (after - before) / before:+.0f} %" if before else ""


def read_size(text: str) -> int | None:
    """`100 MB`, `8GiB` or `4096` in bytes; None if it is not a size."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def duration(seconds: float) -> str:
    """`0.8 s`, `42 s`, `2 min 5 s`."""
    if round(seconds) >= _MINUTE:
        minutes, rest = divmod(round(seconds), _MINUTE)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{seconds:.1f} s" if seconds < _TEN else f"{seconds:.0f} s"


def elided(name: str, most: int) -> str:
    """A name that fits: of a longer one the beginning and the end, which tell it from others."""
    if len(name) <= most:
        return name
    end = (most - 1) * 2 // 3
    return f"{name[: most - 1 - end]}…{name[-end:]}"


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


def rough_seconds(least: float, most: float) -> str:
    """Says roughly how long from `least` to `most` seconds are: `about 8 to 29 s`, `about 4 to 15 minutes`."""
    if most < 1:
        return "less than a second"
    unit, length = ("s", 1) if most < 2 * _MINUTE else ("minutes", _MINUTE)
    first, last = max(1, round(least / length)), max(1, round(most / length))
    return f"about {first} to {last} {unit}" if first < last else f"about {last} {unit}"


def a_few(names: Sequence[str], most: int = 5) -> str:
    """Enough of a list to see what it is about: `a, b and 3 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


# Which name somebody meant who mistyped it.

_LONGEST_WORD = 64  # nobody mistypes more, and the work grows with the square


def nearest_name(word: str, names: Iterable[str]) -> str | None:
    """The name that somebody nearly wrote: nearly all of its letters are in it, in their order."""
    import difflib  # noqa: PLC0415 - only where a name is not known

    known = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word[:_LONGEST_WORD].lower(), known, n=1, cutoff=0.7)
    return known[near[0]] if near else None


def similar_names(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names that have most letters in common with a word that nobody knows."""
    import difflib  # noqa: PLC0415 - only where a name is not known

    return difflib.get_close_matches(word, list(known), n=most)


# Templates of HTML: everything is escaped, since names in it come from untrusted files.
