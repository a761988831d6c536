"""Numbers on a command line, with what is wrong with one in a sentence."""

from __future__ import annotations

from cuwheel.cli.option_values import wrong
from cuwheel.errors import UsageError
from cuwheel.units import read_size

_MOST = 100_000  # compilers, runs: beyond that it is a slip of the keyboard
_LONGEST_S = 366 * 24 * 3600.0
_LAST_LEVEL = 9  # of zlib


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) < 1:
        raise wrong(text, "a positive integer")
    if int(text[:20]) > _MOST:
        raise UsageError(f"it must be at most {_MOST:,}")
    return int(text)


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


def level(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 1 or int(text) > _LAST_LEVEL:
        raise wrong(text, "a level from 0 to 9")
    return int(text)


def index(text: str) -> int:
    """From 0 on, as devices are numbered."""
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > _MOST:
        raise wrong(text, "a number from 0 up")
    return int(text)


def size(text: str) -> int:
    found = read_size(text)
    if not found:
        raise wrong(text, "a size, such as 500MB or 2GB")
    return found
