"""The start of a payload, without the rest."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, get_args
from unittest import mock

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cuwheel.changes.binaries import payloads
from cuwheel_core.device_code import fatbin
from cuwheel_core.device_code.libraries import Compression
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import MemoryBuffer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

LINES = st.lists(
    st.sampled_from((b".reg .b32 %r<2>;\n", b"ret;\n", b"\0" * 300, b"ab", b".version 9.0\n")), max_size=99
)


def without(*modules: str) -> AbstractContextManager[object]:
    """As where they are not installed."""
    return mock.patch.dict(sys.modules, dict.fromkeys(modules))


def _start(data: bytes, how: Compression) -> bytes:
    return fatbin.payload_start(MemoryBuffer("x", data), 0, len(data), how)


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


@pytest.mark.parametrize("how", get_args(Compression))
def test_every_compression_is_written_told_and_read(how: Compression) -> None:
    code = bytes(range(256)) * 8
    data = code if how == "none" else payloads.compressed(code, how)
    head = payloads._header(bytes(fatbin.ENTRY.size), len(data), len(data), len(code), how)
    assert fatbin.compression_of(int.from_bytes(head[0x28:0x30], "little")) == how
    assert how == "none" or payloads._unpacks_to(data, code, how)
    assert fatbin.read_payload(MemoryBuffer("x", data), 0, len(data), len(code), how) == code
    assert _start(data, how)[:256] == code[:256]


@pytest.mark.parametrize("how", ["lz4", "zstd"])
def test_nothing_in_nothing(how: Compression) -> None:
    assert _start(b"", how) == b""


def _whole(data: bytes, size: int, how: Compression) -> bytes:
    return fatbin.read_payload(MemoryBuffer("x", data), 0, len(data), size, how)


@given(LINES.map(b"".join))
def test_a_browser_without_lz4_decodes_the_same(text: bytes) -> None:
    packed: bytes = lz4.block.compress(text, store_size=False)
    with without("lz4", "lz4.block"):
        assert _whole(packed, len(text), "lz4") == text


@given(st.binary(max_size=600), st.integers(0, 2000))
def test_a_browser_survives_noise_too(data: bytes, size: int) -> None:
    with without("lz4", "lz4.block"), contextlib.suppress(MalformedError):
        assert len(_whole(data, size, "lz4")) == size
