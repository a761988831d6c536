"""Of a PE file's load configuration: what names sections by their numbers, and code for two processors in one file."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code.pe import LOAD_CONFIG

if TYPE_CHECKING:
    from cuwheel.device_code.pe import Pe

TABLE = struct.Struct("<IH")  # where the dynamic relocations are: an offset in a section, and its number from 1
_HYBRID_AT, _TABLE_AT = 0xC8, 0xE0
_HYBRID = struct.Struct("<Q")


class LoadConfig(NamedTuple):
    """`hybrid`: it has code for x86-64 and arm64 (ARM64EC, ARM64X). `table_at`: in the file, the row of `TABLE`."""

    hybrid: bool = False
    table_at: int = 0
    table_offset: int = 0
    table_section: int = 0


def read(file: Pe) -> LoadConfig:
    """Linkers write as much of it as they know, and its size first."""
    place, directory_size = file.directory(LOAD_CONFIG)
    at = file.addresses.offset_of(place) if directory_size else None
    if at is None or at + 4 > file.buffer.size:
        return LoadConfig()
    (size,) = struct.unpack("<I", file.buffer.read(at, 4))
    known = file.buffer.read(at, min(size, _TABLE_AT + TABLE.size, file.buffer.size - at))
    hybrid = len(known) >= _HYBRID_AT + _HYBRID.size and any(_HYBRID.unpack_from(known, _HYBRID_AT))
    if len(known) < _TABLE_AT + TABLE.size:
        return LoadConfig(hybrid)
    offset, section = TABLE.unpack_from(known, _TABLE_AT)
    return LoadConfig(hybrid, at + _TABLE_AT, offset, section)
