"""How sure a cause is: what its signatures and the facts weigh together, and how often such a cause is the right one.

A weight says how much a text tells by itself. Weights are written down by judgement, so their sum is no probability:
causes with little weight were right more often than that. `said` turns one into the other, by what was counted on
texts of public threads, and held against others that nobody had seen (docs/why/outside-check.md). That was
counted of first causes; those behind one are told with their weight, which is never more.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CERTAIN = 0.99
SHOWN = 0.2  # weight: causes below are not told
# Weight, and the share of first causes of that weight that were right: between two points the line.
CURVE = ((0.0, 0.0), (0.2, 0.2), (0.38, 0.65), (0.57, 0.89), (0.72, 0.92), (0.84, 0.93), (0.92, 0.96), (1.0, 1.0))


def together(weights: Iterable[float]) -> float:
    """Each leaves a doubt, and the doubts multiply."""
    return 1 - math.prod(1 - each for each in weights)


def said(weight: float) -> float:
    """The confidence as a share of 1, the more the heavier."""
    return round(min(CERTAIN, _between(weight, CURVE)), 2)


def weight_of(confidence: float) -> float:
    """The way back, for counting anew."""
    return _between(confidence, tuple((share, weight) for weight, share in CURVE))


def _between(value: float, points: tuple[tuple[float, float], ...]) -> float:
    for (left, low), (right, high) in pairwise(points):
        if value <= right:
            return low + (high - low) * (value - left) / (right - left)
    return points[-1][1]
