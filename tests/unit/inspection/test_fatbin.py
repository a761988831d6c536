from __future__ import annotations

import struct

import pytest

from cuwheel.inspection.buffer import MemoryBuffer
from cuwheel.inspection.fatbin import Walk
from tests.unit.inspection import build


def walked(data: bytes, *, linked: bool = True) -> Walk:
    walk = Walk(MemoryBuffer("x", data))
    walk.section(".nv_fatbin", 0, len(data), linked=linked)
    return walk


def test_everything_an_entry_tells() -> None:
    data = build.container(
        build.entry(
            build.PTX, 120, b"." * 300, flags=0x13 | build.ZSTD, isa=(9, 0), options="-g -O0", identifier="k.cu"
        )
    )
    (entry,) = walked(data).entries()
    assert (entry.kind, entry.arch, entry.ptx_isa, entry.compression) == ("ptx", "compute_120", "9.0", "zstd")
    assert (entry.real_bytes, entry.debug, entry.options, entry.identifier) == (300, True, "-g -O0", "k.cu")
    assert entry.compressed_bytes <= entry.bytes < 300
    assert (entry.container, entry.offset, entry.cubin_abi) == (0, 16, None)


@pytest.mark.parametrize(
    ("kind", "flags", "arch"),
    [
        (build.CUBIN, 0x11, "sm_90"),
        (build.CUBIN, 0x11 | build.SPECIFIC, "sm_90a"),
        (build.CUBIN, 0x11 | build.FAMILY, "sm_90f"),
        (build.PTX, 0x11 | build.SPECIFIC, "compute_90a"),
        (build.LTO, 0x11, "lto_90"),
    ],
)
def test_architecture(kind: int, flags: int, arch: str) -> None:
    (row,) = walked(build.container(build.entry(kind, 90, b"code", flags=flags))).device_code()
    assert (row.arch, row.count, row.linked) == (arch, 1, True)


def test_one_row_for_each_combination() -> None:
    raw, packed = build.entry(build.CUBIN, 80, b"c" * 64), build.entry(build.CUBIN, 80, b"c" * 64, flags=build.ZSTD)
    walk = walked(build.container(raw, raw) + bytes(24) + build.container(packed))
    rows = walk.device_code()
    assert [(row.compression, row.count, row.bytes, row.real_bytes) for row in rows] == [
        ("none", 2, 2 * len(raw), 128),
        ("zstd", 1, len(packed), 64),
    ]
    assert [len(each.entries) for each in walk.containers] == [2, 1]
    assert walk.findings == []


def test_a_flag_without_compression_means_nothing() -> None:
    data = bytearray(build.container(build.entry(build.CUBIN, 80, b"c" * 64)))
    struct.pack_into("<Q", data, 16 + 0x28, build.LZ4)
    assert walked(bytes(data)).device_code()[0].compression == "none"


GOOD = build.container(build.entry(build.CUBIN, 90, b"good" * 16))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (16 + 4, struct.pack("<I", 0)),  # header size
        (16 + 4, struct.pack("<I", 1 << 31)),
        (16 + 8, struct.pack("<Q", 1 << 60)),  # payload
        (16 + 8, struct.pack("<Q", (1 << 64) - 64)),  # one that would lead back
        (16 + 0x10, struct.pack("<I", 1 << 30)),  # compressed
        (16 + 0x1C, struct.pack("<I", 12345)),  # architecture
        (8, struct.pack("<Q", 1 << 50)),  # the container's size
        (8, struct.pack("<Q", 8)),
        (6, struct.pack("<H", 3)),  # its header's
        (0, b"junk"),
    ],
)
def test_damage_costs_one_container(place: int, value: bytes) -> None:
    damaged = bytearray(GOOD)
    damaged[place : place + len(value)] = value
    walk = walked(GOOD + bytes(damaged) + GOOD)
    assert sum(len(each.entries) for each in walk.containers) >= 2
    assert walk.containers[-1].offset == len(GOOD) * 2
    (first, *_) = walk.findings
    assert (first.rule, first.severity) == ("fatbin-damaged", "error")
    assert "0x" in first.evidence[0]


def test_every_cut_is_survived() -> None:
    for length in range(len(GOOD)):
        walk = walked(GOOD[:length])
        assert not walk.containers or not walk.containers[0].entries


def test_noise_does_not_flood_the_report() -> None:
    walk = walked((struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60)) * 500)
    assert len(walk.findings) < 30
    assert "more places" in walk.findings[-1].message
