from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import lz4.block
import pytest
import zstandard

from cuwheel_core.device_code import cubin, fatbin
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.unit.device_code import build

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Compression


def test_kernels_and_what_they_need() -> None:
    found = cubin.read_cubin("x", build.cubin({"first": (32, 16, 1024), "second": (255, 0, 0)}, sm=100))
    assert [(each.name, each.registers, each.stack_bytes, each.shared_bytes) for each in found.kernels()] == [
        ("first", 32, 16, 1024),
        ("second", 255, 0, 0),
    ]
    assert (str(found.arch), found.abi, found.linked) == ("sm_100", 8, True)


def test_kernels_of_anonymous_namespaces_are_kernels() -> None:
    whole = build.cubin({"seen": (8, 0, 0), "hidden": (9, 0, 0)})
    (at,) = [each.start() for each in re.finditer(re.escape(struct.pack("<IBBH", 6, 0x12, 0x10, 7)), whole)]
    local = whole[: at + 4] + b"\x02" + whole[at + 5 :]
    found = cubin.read_cubin("x", local)
    assert [(each.name, each.registers) for each in found.kernels()] == [("seen", 8), ("hidden", 9)]
    assert found.symbols().kernels == ("seen", "hidden")


def test_the_toolkit_that_wrote_it() -> None:
    assert cubin.toolkit(build.cubin({}, release="13.4")) == "13.4"
    assert cubin.toolkit(build.cubin({}, abi=7, version=124)) == "12.4"
    assert cubin.toolkit(build.cubin({}, abi=7, version=0)) is None
    assert cubin.toolkit(b"\x7fELF") is None


def test_the_suffix_comes_from_the_options() -> None:
    data = build.cubin({}, sm=90).replace(b"-arch sm_90\0", b"-arch sm_90a")
    assert str(cubin.read_cubin("x", data).arch) == "sm_90a"


def test_a_library_of_the_host_is_no_cubin() -> None:
    with pytest.raises(MalformedError, match="x86_64"):
        cubin.read_cubin("x", build.Elf().build())


def test_kernels_of_ptx() -> None:
    text = b"""
.visible .entry _Z4axpyIfEv(
.weak .entry other (
 .entry plain()
// .entry not_this(
.visible .func (.param .b32 r) helper(
"""
    assert [each.name for each in cubin.ptx_kernels(text)] == ["_Z4axpyIfEv", "other", "plain"]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_payload(compression: Compression) -> None:
    real = b"device code " * 100
    stored = {
        "none": real,
        "lz4": lz4.block.compress(real, store_size=False),
        "zstd": zstandard.ZstdCompressor().compress(real),
    }[compression]
    buffer = MemoryBuffer("x", b"head" + stored)
    assert fatbin.read_payload(buffer, 4, len(stored), len(real), compression) == real
    if compression != "none":
        for claimed in (len(real) - 1, len(real) + 1, 0):
            with pytest.raises(MalformedError):
                fatbin.read_payload(buffer, 4, len(stored), claimed, compression)
        with pytest.raises(MalformedError):
            fatbin.read_payload(MemoryBuffer("x", bytes(len(stored))), 0, len(stored), len(real), compression)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    buffer = MemoryBuffer("x", bomb)
    with pytest.raises(MalformedError, match="claims"):
        fatbin.read_payload(buffer, 0, len(bomb), 1 << 26, "zstd")
    with pytest.raises(MalformedError, match="does not decompress"):
        fatbin.read_payload(buffer, 0, len(bomb), 1 << 10, "zstd")
