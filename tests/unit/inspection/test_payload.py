"""The start of a payload, without the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cuwheel.buffer import MemoryBuffer
from cuwheel.inspection import payload

if TYPE_CHECKING:
    from cuwheel.inspection.libraries import Compression

LINES = st.lists(
    st.sampled_from((b".reg .b32 %r<2>;\n", b"ret;\n", b"\0" * 300, b"ab", b".version 9.0\n")), max_size=99
)


def _start(data: bytes, how: Compression) -> bytes:
    return payload.start(MemoryBuffer("x", data), 0, len(data), how)


@given(LINES.map(b"".join))
def test_it_is_what_the_whole_begins_with(text: bytes) -> None:
    packed: bytes = lz4.block.compress(text, store_size=False)
    starts = [_start(text, "none"), _start(packed, "lz4"), _start(zstandard.ZstdCompressor().compress(text), "zstd")]
    for start in starts:
        assert start[:256] == text[:256]


@given(st.binary(max_size=600))
def test_noise_is_survived(data: bytes) -> None:
    for how in ("lz4", "zstd"):
        assert len(_start(data, how)) <= 1 << 17


@pytest.mark.parametrize("how", ["lz4", "zstd"])
def test_nothing_in_nothing(how: Compression) -> None:
    assert _start(b"", how) == b""
