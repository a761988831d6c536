"""Limits: real files fit them, and one that is met is told in the answer."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from cuwheel_core.device_code import library
from cuwheel_core.support.buffer import MemoryBuffer
from tests.unit.device_code import build

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library

SMALL = build.container(build.entry(build.PTX, 75, b".version 8.4\n", isa=(8, 4)))


def read(file: build.Elf) -> Library:
    return library.read_library(MemoryBuffer("x", file.build()), detail="containers")


def limits_told(found: Library) -> list[str]:
    return [each.message for each in found.findings if each.rule == "limit-met"]


def in_data(count: int) -> build.Elf:
    return build.Elf(sections=[build.Section(name=".data", data=SMALL * count)])


def test_tens_of_thousands_of_containers_outside_the_known_sections_are_all_read() -> None:
    found = read(in_data(20_000))
    assert sum(row.count for row in found.device_code) == 20_000
    assert limits_told(found) == []


def test_text_of_more_ptx_than_cufft_has_is_looked_into() -> None:
    differing = build.container(build.entry(build.PTX, 75, b".version 8.4\n", isa=(9, 0)))
    found = read(build.library(*[SMALL] * 12_000, differing))
    assert {row.ptx_isa for row in found.device_code} == {"8.4"}


def test_a_comment_of_megabytes_is_no_damage() -> None:
    text = b"".join(f"GCC: (GNU) 12.{number % 3}.0\0".encode() for number in range(100_000))
    found = read(build.Elf(sections=[build.Section(name=".comment", data=text, flags=0)]))
    assert found.host_compiler == "GCC: (GNU) 12.0.0; GCC: (GNU) 12.1.0; GCC: (GNU) 12.2.0"
    assert limits_told(found) == []


def test_a_comment_of_too_many_compilers() -> None:
    text = b"".join(f"compiler {number}\0".encode() for number in range(1000))
    found = read(build.Elf(sections=[build.Section(name=".comment", data=text, flags=0)]))
    assert found.host_compiler is not None
    assert found.host_compiler.count(";") == 99
    assert "the rest of the host compilers are not listed" in limits_told(found)[0]


def test_a_search_path_of_tens_of_thousands_of_bytes_is_whole() -> None:
    paths = [f"$ORIGIN/../{'x' * 50}{number}" for number in range(1000)]
    assert read(build.dynamic(needed=("a",), runpath=":".join(paths))).runpath == tuple(paths)


def test_arrays_of_any_length_name_their_containers() -> None:
    """A device-linked wrapper's array had an end at 8,192 pointers."""
    file = build.Elf(
        sections=[
            build.Section(name=".nv_fatbin", data=SMALL * 9000),
            build.Section(name=".nvFatBinSegment", data=bytes(24)),
            build.Section(name=".data.rel", data=bytes(8 * 9001)),
        ]
    )
    pointers = [file.address(".nv_fatbin") + len(SMALL) * each for each in range(9000)]
    file.sections[2].data = struct.pack("<9001Q", *pointers, 0)
    wrapper = struct.pack("<IIQQ", 0x466243B1, 2, pointers[0], file.address(".data.rel"))
    file.sections[1].data = wrapper
    assert read(file).registration.unnamed == ()


def _wrappers() -> build.Elf:
    return build.library(*[SMALL] * 9)


def _module_ids() -> build.Elf:
    file = build.library(SMALL)
    file.sections.append(build.Section(name="__nv_module_id", data=b"def abc\0" * 100))
    return file


@pytest.mark.parametrize(
    ("limit", "value", "file", "told"),
    [
        ("loose._MOST_HITS", 5, in_data(2000), "fat binaries and cubins outside the known sections"),
        ("fatbin._MOST_CONTAINERS", 5, build.library(*[SMALL] * 9), "the rest of the device code was not read"),
        ("fatbin._MOST_ENTRIES", 5, build.library(*[SMALL] * 9), "the rest of the device code was not read"),
        ("fatbin._MOST_CONTAINERS", 5, in_data(9), "the rest of the device code was not read"),
        ("fatbin._MOST_TEXTS", 5, build.library(*[SMALL] * 9), "the ISA of the rest is taken from their entries"),
        ("registration._MOST_WRAPPERS", 5, _wrappers(), "what the rest register is not known"),
        ("registration._MODULE_IDS_LIMIT", 50, _module_ids(), "the rest of the module ids were not read"),
        ("dynamic._MOST_TAGS", 3, build.dynamic(needed=("a", "b", "c", "d")), "are not listed"),
        ("dynamic._MOST_VERSIONS", 1, build.dynamic(needed=("a",), glibc="GLIBC_2.28"), "the rest are not counted"),
        ("library._COMMENT_LIMIT", 4, build.Elf(sections=[build.Section(name=".comment", data=b"GCC 12")]), "list"),
    ],
)  # fmt: skip
def test_a_limit_that_is_met_is_told(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, file: build.Elf, told: str
) -> None:
    assert limits_told(read(file)) == []
    monkeypatch.setattr(f"cuwheel_core.device_code.{limit}", value)
    (message,) = limits_told(read(file))
    assert told in message


@pytest.mark.parametrize(
    ("sm", "arch"), [(30, "sm_30"), (60, "sm_60"), (75, "sm_75"), (90, "sm_90a"), (100, "sm_100a")]
)
def test_the_bit_for_specific_code_means_that_only_where_there_is_such_code(sm: int, arch: str) -> None:
    data = bytearray(build.cubin({"kernel": (32, 0, 0)}, sm=sm, abi=7, version=80))
    struct.pack_into("<I", data, 0x30, sm << 16 | 0x0D00 | sm)  # as CUDA 8 wrote it for sm_60
    (row,) = library.read_library(MemoryBuffer("x", bytes(data))).device_code
    assert row.arch == arch
