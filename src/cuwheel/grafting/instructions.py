"""AArch64 instructions that hold part of an address, and whether two differ as what they refer to has moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwheel.grafting.moves import Moves

_PAGE = 1 << 12
_ADRP_MASK, _ADRP, _ADR = 0x9F000000, 0x90000000, 0x10000000
_ADRP_FIELDS = 0x60FFFFE0
_ADD_MASK, _ADD = 0x7FC00000, 0x11000000
_LOAD_MASK, _LOAD = 0x3B000000, 0x39000000
_LOW_FIELD = 0x003FFC00
_BRANCH_MASK, _BRANCH = 0x7C000000, 0x14000000
_BRANCH_FIELD = 0x03FFFFFF


def explained(ours: int, theirs: int, place: int, moved: int, moves: Moves) -> bool:
    """`place`: where the instruction is in the base; `moved`: how much further it is in the donor."""
    if ours & _ADRP_MASK == theirs & _ADRP_MASK and (ours ^ theirs) & ~_ADRP_FIELDS == 0:
        if ours & _ADRP_MASK == _ADRP:
            page = place // _PAGE * _PAGE + _signed(ours) * _PAGE
            other = (place + moved) // _PAGE * _PAGE + _signed(theirs) * _PAGE
            nearest = set(moves.near(page, _PAGE))
            return any(
                other in {(page + each) // _PAGE * _PAGE, (page + _PAGE - 1 + each) // _PAGE * _PAGE}
                for each in nearest
            )
        if ours & _ADRP_MASK == _ADR:
            return moves.explains(place + _signed(ours), place + moved + _signed(theirs), 16)
    if ours & _BRANCH_MASK == _BRANCH and (ours ^ theirs) & ~_BRANCH_FIELD == 0:
        one, other = (4 * _extended(each & _BRANCH_FIELD, 26) for each in (ours, theirs))
        return moves.explains(place + one, place + moved + other)
    if (ours ^ theirs) & ~_LOW_FIELD:
        return False
    scale = _scale(ours)
    if scale is None:
        return False
    step = (((theirs & _LOW_FIELD) - (ours & _LOW_FIELD)) >> 10 << scale) % _PAGE
    return any(step == each % _PAGE for each in moves.all)


def _scale(instruction: int) -> int | None:
    """By what the low twelve bits of an address are divided."""
    if instruction & _ADD_MASK == _ADD:
        return 0
    if instruction & _LOAD_MASK == _LOAD:
        size = instruction >> 30
        vector = instruction >> 26 & 1 and instruction >> 23 & 1
        return 4 if vector and not size else size
    return None


def _signed(instruction: int) -> int:
    return _extended((instruction >> 5 & 0x7FFFF) << 2 | instruction >> 29 & 3, 21)


def _extended(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
