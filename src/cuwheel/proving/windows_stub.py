"""nvcuda.dll as `stub` wants it: functions that share a few bytes of code."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cuwheel.device_code import pe

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "nvcuda.dll"
_MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64}
_HEADER_AT, _SECTOR, _PAGE = 0x40, 0x200, 0x1000
_EXPORTS_AT = 16  # behind the code: an address in the table of exports would be taken for another library's function
_BASE = 0x180000000
_DLL = 0x2022  # executable, large addresses, a library
_CODE_AND_DATA = 0x60000060  # read and run
_EXPORTS = struct.Struct("<IIHHIIIIIII")


def library(names: Sequence[str], cpu: str, code: bytes) -> bytes:
    """One section: the code that all functions share, and the table of their names, in order.

    It is its entry point, too: any answer but zero lets it be loaded.
    """
    body = code.ljust(_EXPORTS_AT, b"\0") + _exports(sorted(names))
    stored = -(-len(body) // _SECTOR) * _SECTOR
    directories = struct.pack("<II", _PAGE + _EXPORTS_AT, len(body) - _EXPORTS_AT) + bytes(15 * 8)
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII",
        *(0x20B, 14, 0, stored, 0, 0, _PAGE, _PAGE, _BASE, _PAGE, _SECTOR, 6, 0, 0, 0, 6, 0, 0),
        *(_PAGE + -(-len(body) // _PAGE) * _PAGE, _SECTOR, 0, 2, 0x160, 1 << 20, _PAGE, 1 << 20, _PAGE, 0, 16),
    )
    coff = (b"PE\0\0", _MACHINES[cpu], 1, 0, 0, 0, len(optional) + len(directories), _DLL)
    row = (b".text", len(body), _PAGE, stored, _SECTOR, 0, 0, 0, 0, _CODE_AND_DATA)
    dos = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", _HEADER_AT)
    head = dos + pe.COFF.pack(*coff) + optional + directories + pe.SECTION.pack(*row)
    return head.ljust(_SECTOR, b"\0") + body.ljust(stored, b"\0")


def _exports(names: Sequence[str]) -> bytes:
    """All of them lead to the section's start."""
    count, start = len(names), _PAGE + _EXPORTS_AT + _EXPORTS.size
    texts_at = start + 10 * count
    places, texts = [], NAME.encode() + b"\0"
    for each in names:
        places.append(texts_at + len(texts))
        texts += each.encode() + b"\0"
    tables = (start, start + 4 * count, start + 8 * count)
    head = _EXPORTS.pack(0, 0, 0, 0, texts_at, 1, count, count, *tables)
    addresses = struct.pack(f"<{count}I", *[_PAGE] * count) + struct.pack(f"<{count}I", *places)
    return head + addresses + struct.pack(f"<{count}H", *range(count)) + texts
