"""Where the pointers of an ELF file will point once it is loaded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cuwheel.device_code import limits
from cuwheel.device_code.dynamic import SYMBOL
from cuwheel.device_code.elf import SHT_RELA, TYPE_RELOCATABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.elf import Elf, Header

_RELA = struct.Struct("<QQq")
_AT_ONCE = 1 << 12
_PASSES = 4
_BLOCK_BITS = 16
_MOST_BLOCKS = 4


class ElfPointers:
    """Reads only relocations that touch the given sections; a pointer without one stands in place (RELR)."""

    def __init__(self, elf: Elf, sections: tuple[str, ...]) -> None:
        self._elf = elf
        self._targets: dict[int, int | None] = {}
        budget = _PASSES * elf.buffer.size
        for header in elf.headers:
            if header.name in sections:
                for table in _tables(elf, header):
                    budget -= table.size
                    if budget < 0:  # sections and tables over the same bytes, again and again
                        limits.met(
                            f"relocation tables of {_PASSES} times the file", "the rest of the pointers are not known"
                        )
                        return
                    self._targets.update(_relocated(elf, header, table))

    def target(self, slot: int, value: int) -> int | None:
        if slot in self._targets:
            return self._targets[slot]
        return self._elf.addresses.offset_of(value) if value else None


def _tables(elf: Elf, section: Header) -> Iterator[Header]:
    for table in elf.headers:
        if table.type == SHT_RELA and (elf.type != TYPE_RELOCATABLE or table.info == section.number):
            yield table


def _relocated(elf: Elf, section: Header, table: Header) -> Iterator[tuple[int, int | None]]:
    """File offset of a pointer in `section` → file offset of what it points at."""
    start = 0 if elf.type == TYPE_RELOCATABLE else section.address
    for place, info, addend in _touching(elf, table, start, start + section.size):
        yield section.offset + place - start, _target(elf, table, info >> 32, addend)


def _touching(elf: Elf, table: Header, low: int, high: int) -> Iterator[tuple[int, int, int]]:
    step = _RELA.size * _AT_ONCE
    usable = min(table.size, max(elf.buffer.size - table.offset, 0)) // _RELA.size * _RELA.size
    last = min(high, 1 << 64) - 1  # a damaged section may reach beyond every address
    blocks = range(low >> _BLOCK_BITS, (last >> _BLOCK_BITS) + 1)
    # What the places sought have in common: the upper bytes of their address.
    common = [block.to_bytes(8 - _BLOCK_BITS // 8, "little") for block in blocks[:_MOST_BLOCKS]]
    for offset in range(0, usable, step):
        data = elf.buffer.read(table.offset + offset, min(step, usable - offset))
        if len(blocks) <= _MOST_BLOCKS and not any(upper in data for upper in common):
            continue  # most pieces: decided at native speed
        for index, place in enumerate(memoryview(data).cast("Q")[::3].tolist()):
            if low <= place < high:
                yield _RELA.unpack_from(data, index * _RELA.size)


def _target(elf: Elf, table: Header, symbol: int, addend: int) -> int | None:
    if not symbol:
        return elf.addresses.offset_of(addend)
    if table.link >= len(elf.headers):
        return None
    symbols = elf.headers[table.link]
    if (symbol + 1) * SYMBOL.size > symbols.size:
        return None
    raw = elf.buffer.read(symbols.offset + symbol * SYMBOL.size, SYMBOL.size)
    section: int
    value: int
    _, _, _, section, value, _ = SYMBOL.unpack(raw)
    if elf.type != TYPE_RELOCATABLE:
        return elf.addresses.offset_of(value + addend)
    if not 0 < section < len(elf.headers):
        return None
    return elf.headers[section].offset + value + addend
