"""Changes that keep a library a library: one field of its headers, its tables or its fat binaries to an odd value."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 65536
_MAGIC = struct.pack("<I", 0xBA55ED50)
_SECTION, _SEGMENT, _ENTRY = 64, 56, 64
# Where the fields of each structure are, and how wide.
_HEADER_FIELDS = ((0x10, 2), (0x12, 2), (0x18, 8), (0x20, 8), (0x28, 8), (0x36, 2), (0x38, 2), (0x3A, 2), (0x3C, 2))
_SECTION_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8))
_SEGMENT_FIELDS = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8))
# Of a PE file: the header, the optional header behind it, its directories, and rows of the section table.
_PE_FIELDS = (
    (6, 2),
    (12, 4),
    (16, 4),
    (20, 2),
    (22, 2),
    *((24 + at, 4) for at in (8, 16, 32, 36, 56, 60, 64, 70, 108)),
)
_PE_DIRECTORIES = tuple((24 + 112 + 4 * index, 4) for index in range(32))
_ROW_FIELDS = ((0, 4), (8, 4), (12, 4), (16, 4), (20, 4), (36, 4))
_ROW = 40
_CONTAINER_FIELDS = ((4, 2), (6, 2), (8, 8))
_ENTRY_FIELDS = ((0, 2), (2, 2), (4, 4), (8, 8), (16, 4), (20, 4), (24, 4), (28, 4), (40, 8), (56, 8))
_MOST_CONTAINERS = 200


def mutate(data: bytes, seed: int) -> bytes:
    chance = random.Random(seed)  # noqa: S311 - libFuzzer's seed, so that it can be repeated
    changed = bytearray(data)
    places = list(_fields(data))
    for _ in range(chance.randint(1, 5) if places else 0):
        at, width = chance.choice(places)
        if at + width <= len(changed):
            old = int.from_bytes(changed[at : at + width], "little")
            changed[at : at + width] = (_odd(old, width, len(data), chance) % (1 << 8 * width)).to_bytes(
                width, "little"
            )
    return bytes(changed)


def _odd(old: int, width: int, size: int, chance: random.Random) -> int:
    near = old + chance.choice((-4096, -64, -16, -8, -1, 1, 8, 16, 64, 4096, 65536))
    ends = chance.choice((0, 1, size, size - 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), 1 << (4 * width)))
    return chance.choice((near, near, old ^ 1 << chance.randrange(8 * width), old // 2, old * 2, ends))


def _fields(data: bytes) -> Iterator[tuple[int, int]]:
    if len(data) < _SECTION:
        return
    yield from _pe_fields(data) if data[:2] == b"MZ" else _elf_fields(data)
    at = data.find(_MAGIC)
    for _ in range(_MOST_CONTAINERS):
        if at < 0:
            return
        yield from ((at + field, width) for field, width in _CONTAINER_FIELDS)
        yield from ((at + 16 + field, width) for field, width in _ENTRY_FIELDS)
        at = data.find(_MAGIC, at + 4)


def _pe_fields(data: bytes) -> Iterator[tuple[int, int]]:
    """Those of the header, of the section table, and of the relocations, which are the last section."""
    (at,) = struct.unpack_from("<I", data, 0x3C)
    if at + 24 > len(data):
        return
    yield from ((at + field, width) for field, width in (*_PE_FIELDS, *_PE_DIRECTORIES))
    count, size = struct.unpack_from("<H", data, at + 6)[0], struct.unpack_from("<H", data, at + 20)[0]
    for row in range(at + 24 + size, min(at + 24 + size + count * _ROW, len(data) - _ROW), _ROW):
        yield from ((row + field, width) for field, width in _ROW_FIELDS)
        if data[row : row + 6] == b".reloc":
            (relocations,) = struct.unpack_from("<I", data, row + 20)
            yield from ((relocations + field, 2) for field in range(0, 32, 2))


def _elf_fields(data: bytes) -> Iterator[tuple[int, int]]:
    yield from _HEADER_FIELDS
    (programs, sections), (rows,), (headers,) = (
        struct.unpack_from("<QQ", data, 0x20),
        struct.unpack_from("<H", data, 0x38),
        struct.unpack_from("<H", data, 0x3C),
    )
    for table, size, count, fields in (
        (programs, _SEGMENT, rows, _SEGMENT_FIELDS),
        (sections, _SECTION, headers, _SECTION_FIELDS),
    ):
        for row in range(table, min(table + count * size, len(data)), size):
            yield from ((row + at, width) for at, width in fields)
