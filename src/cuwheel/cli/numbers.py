"""Numbers on a command line, with what is wrong with one in a sentence."""

from __future__ import annotations

from cuwheel.cli.option_values import wrong
from cuwheel.errors import UsageError
from cuwheel.support.wording import read_size

_MOST = 100_000  # compilers, runs: beyond that it is a slip of the keyboard
_MOST_AT_ONCE = 1024
_LONGEST_S = 366 * 24 * 3600.0
_UNITS_S = {"h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}
_AGE_DIGITS = 5
_LAST_LEVEL = 9  # of zlib


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) < 1:
        raise wrong(text, "a positive integer")
    if int(text[:20]) > _MOST:
        raise UsageError(f"it must be at most {_MOST:,}")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """With commas: `1,2,4`."""
    found = tuple(count(each.strip()) for each in text.split(","))
    if max(found) > _MOST_AT_ONCE:
        raise UsageError(f"each must be at most {_MOST_AT_ONCE:,}")
    return found


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise wrong(text, "a positive number of seconds")
    if value > _LONGEST_S:
        raise UsageError("it must be at most a year, in seconds")
    return value


def chance(text: str) -> float:
    """Above 0 and below 1, also in percent."""
    cleaned = text.strip()
    try:
        value = float(cleaned.removesuffix("%")) / (100 if cleaned.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise wrong(text, "a rate above 0 and below 1, such as 0.05 or 5%")
    return value


def level(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 1 or int(text) > _LAST_LEVEL:
        raise wrong(text, "a level from 0 to 9")
    return int(text)


def index(text: str) -> int:
    """From 0 on, as devices are numbered."""
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > _MOST:
        raise wrong(text, "a number from 0 up")
    return int(text)


def age(text: str) -> float:
    """`30d`, `12h`, `2w` in seconds."""
    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    if unit not in _UNITS_S or not (number.isascii() and number.isdecimal()) or len(number) > _AGE_DIGITS:
        raise wrong(text, "an age, such as 30d, 12h or 2w")
    return int(number) * _UNITS_S[unit]


def size(text: str) -> int:
    found = read_size(text)
    if not found:
        raise wrong(text, "a size, such as 500MB or 2GB")
    return found
