"""Numbers in texts that strangers wrote, with a limit.

Python refuses to read more than 4,300 digits, and no float holds more than 308 of them; no size, count or version has
twenty. So digits by the thousand are a number that is too large.
"""

from __future__ import annotations

import math

MOST_DIGITS = 20


LARGEST = 10**MOST_DIGITS  # what more digits come to: more than any size, count or part of a version


def digits(text: str | bytes) -> int:
    """The number that decimal digits are, as a pattern found them; ValueError where they are something else."""
    if len(text) <= MOST_DIGITS:
        return int(text)
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    if not text.isdecimal():
        raise ValueError(f"not digits: {text[:MOST_DIGITS]!r}…")
    kept = text.lstrip("0")
    return int(kept or "0") if len(kept) <= MOST_DIGITS else LARGEST


def whole(text: str) -> int | None:
    """The number that a text of ASCII digits is; None where it is anything else."""
    return digits(text) if text.isascii() and text.isdecimal() else None


def real(text: str) -> float | None:
    """The number that a text is, with a point, a sign or an exponent; None where it is none, or not finite."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
