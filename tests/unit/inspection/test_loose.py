"""Cubins in ZSTD frames that stand in no container: what their headers tell, and what is no such thing."""

from __future__ import annotations

import struct

import pytest
import zstandard

from cuwheel.buffer import MemoryBuffer
from cuwheel.inspection import loose, payload

HEAD = struct.pack("<16sHHIQQQI", b"\x7fELF\2\1\1\x41\x08", 2, 190, 1, 0, 0, 0, 0x6007802)
BODY = HEAD + bytes(range(256)) * 900


def packed(data: bytes, *, checksum: bool = False) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum).compress(data)


@pytest.mark.parametrize("checksum", [False, True])
def test_a_frame_among_other_bytes(checksum: bool) -> None:  # noqa: FBT001 - a case
    frame = packed(BODY, checksum=checksum)
    found = loose.unpacked(MemoryBuffer("x", b"12345678" + frame + b"behind"), ".ldata", 8, len(frame) + 14)
    assert found is not None
    assert (found.offset, found.size, found.real) == (8, len(frame), len(BODY))
    assert (found.arch, found.abi, found.linked, found.compression) == ("sm_120", 8, True, "zstd")
    (row,) = loose.rows([found])
    assert (row.bytes, row.real_bytes, row.compression) == (len(frame), len(BODY), "zstd")
    assert loose.entry(found).compressed_bytes == len(frame)


@pytest.mark.parametrize(
    "data",
    [
        packed(b"text " * 500),
        packed(BODY[:18] + b"\x3e\0" + BODY[20:]),  # for a CPU
        packed(BODY)[:-1],
        packed(BODY)[:9],
        payload.ZSTD_MAGIC,
        payload.ZSTD_MAGIC + bytes(40),
        payload.ZSTD_MAGIC + b"\xff" * 40,
    ],
)
def test_what_is_no_cubin(data: bytes) -> None:
    assert loose.unpacked(MemoryBuffer("x", data), ".ldata", 0, len(data)) is None


def test_a_frame_of_blocks_that_go_on_for_ever() -> None:
    """Each block says that another follows: it ends with the file."""
    head = packed(BODY)[:6]
    data = head + struct.pack("<I", 4)[:3] * 5000
    assert payload.zstd_frame(MemoryBuffer("x", data), 0, len(data)) is None
