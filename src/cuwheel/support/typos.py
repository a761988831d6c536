"""Which name somebody meant who mistyped it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SWAPPED = 0.5  # two neighbours exchanged: the commonest slip in numbers
_LOOK_ALIKE = 0.25
_ALIKE = tuple(frozenset(pair) for pair in ("0o", "1l", "1i", "5s", "8b", "2z", "-_", "_ ", "- "))
_LONGEST = 64  # nobody mistypes more, and the work grows with the square


def distance(one: str, other: str) -> float:
    """How many slips of the hand lie between two words."""
    one, other = one[:_LONGEST], other[:_LONGEST]
    before: list[float] = []
    last: list[float] = [float(column) for column in range(len(other) + 1)]
    for row, left in enumerate(one, 1):
        line = [float(row)]
        for column, right in enumerate(other, 1):
            cost = 0.0 if left == right else _LOOK_ALIKE if frozenset(left + right) in _ALIKE else 1.0
            best = min(last[column] + 1, line[-1] + 1, last[column - 1] + cost)
            if min(row, column) > 1 and left == other[column - 2] and right == one[row - 2] and left != right:
                best = min(best, before[column - 2] + _SWAPPED)
            line.append(best)
        before, last = last, line
    return last[-1]


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that is at most a third of its letters away."""
    ranked = min(((distance(word.lower(), name.lower()), name) for name in names), default=None)
    return ranked[1] if ranked and ranked[0] <= max(len(ranked[1]) / 3, 1) else None


def alike(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names that have most letters in common with a word that nobody knows."""
    import difflib  # noqa: PLC0415 - only where a name is not known

    return difflib.get_close_matches(word, list(known), n=most)
