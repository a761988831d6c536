"""AArch64 instructions that hold part of an address: what they hold."""

from __future__ import annotations

PAGE = 1 << 12
_RELATIVE_MASK, _ADRP, _ADR = 0x9F000000, 0x90000000, 0x10000000
RELATIVE_FIELDS = 0x60FFFFE0
_ADD_MASK, _ADD = 0x7FC00000, 0x11000000
_WIDE = 0x80000000
_LOAD_MASK, _LOAD = 0x3B000000, 0x39000000
LOW_FIELD = 0x003FFC00
_BRANCH_MASK, _BRANCH = 0x7C000000, 0x14000000
BRANCH_FIELD = 0x03FFFFFF
_REGISTER = 0x1F


def is_page(word: int) -> bool:
    """adrp: the page of an address, relative to its own."""
    return word & _RELATIVE_MASK == _ADRP


def is_near(word: int) -> bool:
    """adr: a whole address, relative to its own."""
    return word & _RELATIVE_MASK == _ADR


def is_branch(word: int) -> bool:
    return word & _BRANCH_MASK == _BRANCH


def relative(word: int) -> int:
    """Of adr in bytes, of adrp in pages."""
    return _extended((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)


def branch(word: int) -> int:
    return 4 * _extended(word & BRANCH_FIELD, 26)


def low_scale(word: int) -> int | None:
    """By what the low twelve bits of an address are divided, as a power of two; None: it holds none."""
    if word & _ADD_MASK == _ADD:
        return 0
    if word & _LOAD_MASK == _LOAD:
        size = word >> 30
        vector = word >> 26 & 1 and word >> 23 & 1
        return 4 if vector and not size else size
    return None


def completed(word: int, page: int) -> int | None:
    """What an add behind the adrp `page` adds to its register; None where it is no such instruction."""
    if word & (_ADD_MASK | _WIDE) != _ADD | _WIDE or word >> 5 & _REGISTER != page & _REGISTER:
        return None
    return (word & LOW_FIELD) >> 10


def _extended(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
