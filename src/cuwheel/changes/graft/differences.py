"""Code and data of two builds compared: equal, or words that differ by just as much as what they refer to has moved."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from cuwheel.changes.graft import instructions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.graft.moves import Area, Moves
    from cuwheel.support.buffer import Buffer

_WORD = struct.Struct("<Q")
_HALF = struct.Struct("<i")
_AT_ONCE = 1 << 20
_OVERLAP = 16
_DIFFERING = re.compile(rb"[^\0]+")
_SLACK = 16  # of what an instruction refers to: its own end, and an offset into or before an object


def first(
    base: Buffer, donor: Buffer, area: Area, moves: Moves, *, fixed_width: bool = False, image: int | None = None
) -> int | None:
    """Where in a section of code or data the first difference is that nothing explains.

    `fixed_width`: it is of instructions of four bytes. `image`: the address that words of four bytes may be relative
    to, in a format that has such. A piece at a time, pieces overlapping: a word may stand on their border.
    """
    origins = [(area.ours.address, area.moved)]  # what words of four bytes are relative to, and how far that moved
    if image is not None:
        origins.append((image, 0))
    done = 0
    for start in range(0, area.ours.size, _AT_ONCE):
        low = max(start - _OVERLAP, 0)
        count = min(start + _AT_ONCE + _OVERLAP, area.ours.size) - low
        one = base.read(area.ours.offset + low, count)
        other = donor.read(area.theirs.offset + low, count)
        if one == other:
            continue
        differing = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
        for run in _DIFFERING.finditer(differing.to_bytes(count, "little")):
            at = max(run.start(), done - low)
            end = run.end()
            while at < end:
                if at + low >= start + _AT_ONCE:  # the next piece has all of it
                    break
                explained = _word(one, other, at, area, low, moves, None if fixed_width else origins)
                if explained is None:
                    return low + at
                at = explained
                done = low + at
    return None


def _word(
    one: bytes, other: bytes, at: int, area: Area, low: int, moves: Moves, origins: Sequence[tuple[int, int]] | None
) -> int | None:
    """Behind the word around `at` that accounts for the difference; None where there is none."""
    if origins is None:
        place = at // 4 * 4
        here = area.ours.address + low + place
        ours, theirs = (int.from_bytes(each[place : place + 4], "little") for each in (one, other))
        return place + 4 if instructions.explained(ours, theirs, here, area.moved, moves) else None
    for place in range(at, max(at - 8, -1), -1):
        if place + 8 <= len(one) and place > at - 8:
            (ours,), (theirs,) = _WORD.unpack_from(one, place), _WORD.unpack_from(other, place)
            if moves.explains(ours, theirs):
                return place + 8
        if place + 4 <= len(one) and place > at - 4:
            (near,), (far,) = _HALF.unpack_from(one, place), _HALF.unpack_from(other, place)
            # Relative to where the word is, as in instructions and unwind tables, or to one of the origins.
            for origin, away in ((area.ours.address + low + place, area.moved), *origins):
                if any(far - near == moved - away for moved in moves.near(origin + near, _SLACK)):
                    return place + 4
    return None
