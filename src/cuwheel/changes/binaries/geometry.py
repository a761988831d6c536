"""Where bytes of a file end up once whole pages are cut out of it. Addresses never change: only offsets do.

Everything is counted in offsets of the original file; `Shift` turns them into offsets of the new one.
"""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGES = {"x86_64": 1 << 12, "aarch64": 1 << 16}  # the largest that a kernel of that machine uses
BLOCK_ALIGNMENT = 64  # of what moves among device code


class Cut(NamedTuple):
    """Whole pages that are left out. `zeros`: whoever reads them finds zeros; else nothing is loaded there."""

    start: int
    end: int
    zeros: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start


class Block(NamedTuple):
    """Bytes that move elsewhere, addresses and all, to make room for program headers."""

    start: int
    end: int
    to: int
    address_delta: int

    def holds(self, offset: int) -> bool:
        return self.start <= offset < self.end


class Shift:
    """From an offset in the original file to the one in the new file.

    `inserted`: how many bytes more there are, before what stood at which offset.
    """

    def __init__(self, cuts: Sequence[Cut], block: Block | None = None, inserted: tuple[int, int] = (0, 0)) -> None:
        self._more, self._from = inserted
        self._ends = [cut.end for cut in sorted(cuts)]
        self._gone = [0, *itertools.accumulate(cut.size for cut in sorted(cuts))]
        self._block = block

    def __call__(self, offset: int) -> int:
        """Of a byte that is kept where it was, or in the block that moves."""
        if self._block and self._block.holds(offset):
            offset += self._block.to - self._block.start
        return self.placed(offset)

    def placed(self, offset: int) -> int:
        """Of a place, whatever stood there before."""
        more = self._more if offset >= self._from else 0
        return offset - self._gone[bisect.bisect_right(self._ends, offset)] + more


def up(value: int, step: int) -> int:
    return -(-value // step) * step


def down(value: int, step: int) -> int:
    return value // step * step


def without(start: int, end: int, cuts: Sequence[Cut]) -> Iterator[tuple[int, int]]:
    """What is left of [start, end), in order."""
    for cut in sorted(cuts):
        if cut.end <= start or cut.start >= end:
            continue
        if cut.start > start:
            yield start, cut.start
        start = cut.end
    if start < end:
        yield start, end
