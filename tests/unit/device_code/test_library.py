from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from cuwheel_core.device_code import library
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.unit.device_code import build

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library

CODE = build.cubin({"kernel": (32, 16, 1024)}, sm=90)
ONE = build.container(build.entry(build.CUBIN, 90, CODE))
TWO = build.container(build.entry(build.CUBIN, 80, CODE, flags=0x11 | build.ZSTD), build.entry(build.PTX, 90, b"."))


def read(data: bytes, *, whole: bool = False) -> Library:
    found = library.read_library(MemoryBuffer("x", data), detail="entries", search="whole" if whole else "data")
    assert sum(part.bytes for part in found.parts) == len(data)
    return found


@pytest.mark.parametrize(
    ("name", "major", "minor"),
    [
        ("libcudart.so.12", 12, None),
        ("libcudart.so.11.0", 11, None),  # every 11.x is called so
        ("libcudart.so.10.1", 10, 1),
        ("libcudart-8774224f.so.9.0", 9, 0),
        ("libcudart-a1b2c3d4.so.10.1.168", 10, 1),
        ("libcudart.45e7f3ed.so.12", 12, None),  # as torchvision 0.22.1 names its copy
        ("cudart64_90.dll", 9, 0),
        ("cudart64_101.dll", 10, 1),
        ("cudart64_110.dll", 11, None),
        ("cudart64_12.dll", 12, None),
        ("cudart64_14.dll", 14, None),
        ("libcudart.so", None, None),
    ],
)
def test_the_runtime_by_its_name(name: str, major: int | None, minor: int | None) -> None:
    found = library.cudart([name], None, ())
    assert found is not None
    assert (found.major, found.minor) == (major, minor)
    assert library.cudart([f"libcudart.so.{'9' * 5000}"], None, ()) is not None


def test_a_shared_object() -> None:
    found = read(build.library(ONE, TWO).build())
    assert (found.format, found.type, found.machine) == ("elf", "shared", "x86_64")
    assert [(row.arch, row.section, row.compression) for row in found.device_code] == [
        ("sm_90", ".nv_fatbin", "none"),
        ("sm_80", ".nv_fatbin", "zstd"),
        ("compute_90", ".nv_fatbin", "none"),
    ]
    assert [each.container for each in found.registration.wrappers] == [0, 1]
    assert (found.registration.containers, found.registration.unnamed) == (2, ())
    assert [each.code for each in found.containers] == [(0,), (1, 2)]
    assert found.toolkits == ("13.0",)
    assert found.cudart is not None
    assert (found.cudart.linkage, found.cudart.major) == ("static", 13)
    assert found.findings == ()
    assert not found.device_linked


def test_detail_is_given_when_asked_for() -> None:
    buffer = MemoryBuffer("x", build.library(ONE).build())
    assert (library.read_library(buffer).containers, library.read_library(buffer).entries) == ((), ())
    assert library.read_library(buffer, detail="containers").containers != ()


def test_relocatable_code_is_not_linked() -> None:
    found = read(build.library(ONE, relocatable=TWO).build())
    assert [(row.section, row.linked) for row in found.device_code] == [
        (".nv_fatbin", True),
        ("__nv_relfatbin", False),
        ("__nv_relfatbin", False),
    ]
    assert found.registration.unnamed == (1,)


def test_pointers_that_stand_in_place() -> None:
    """As with RELR: no relocation with an addend, the address is in the wrapper."""
    file = build.library(ONE)
    file.sections[3].data = build.wrapper(file.address(".nv_fatbin"), version=2)
    file.sections[4].data = b""
    (found,) = read(file.build()).registration.wrappers
    assert (found.version, found.container) == (2, 0)


def test_an_object_file_through_its_symbols() -> None:
    symbols = bytes(24) + struct.pack("<IBBHQQ", 0, 3, 0, 1, 0, 0)
    file = build.Elf(
        type=1,
        sections=[
            build.Section(name=".nv_fatbin", data=TWO + ONE),
            build.Section(name=".nvFatBinSegment", data=build.wrapper()),
            build.Section(name=".symtab", type=build.SYMTAB, data=symbols, flags=0),
            build.Section(
                name=".rela.nvFatBinSegment",
                type=build.RELA,
                data=struct.pack("<QQq", 8, 1 << 32 | 1, len(TWO)),
                flags=0,
                link=3,
                info=2,
            ),
        ],
    )
    found = read(file.build())
    assert [each.container for each in found.registration.wrappers] == [1]
    assert found.registration.unnamed == (0,)
    assert found.cudart is None  # it has yet to be linked


def test_wrappers_of_nothing() -> None:
    file = build.library(ONE)
    file.sections[4].data = build.rela((file.address(".nvFatBinSegment") + 8, 1 << 60))
    registration = read(file.build()).registration
    assert [each.container for each in registration.wrappers] == [None]
    assert registration.unnamed == (0,)


def test_damaged_registration_is_a_finding() -> None:
    file = build.library(ONE)
    file.sections[3].data = b"\xff" * 24
    assert [each.rule for each in read(file.build()).findings] == ["registration-damaged"]


def test_static_archive() -> None:
    first, second = (build.library(each).build() for each in (ONE, TWO))
    found = read(build.archive(("a.o", first), ("readme", b"text"), ("b.o", second)))
    assert found.format == "archive"
    assert [row.arch for row in found.device_code] == ["sm_90", "sm_80", "compute_90"]
    assert [each.container for each in found.registration.wrappers] == [0, 1]


def test_a_broken_member_of_an_archive() -> None:
    broken = build.library(ONE).build()[:200]
    found = read(build.archive(("a.o", broken), ("b.o", build.library(TWO).build())))
    assert [row.arch for row in found.device_code] == ["sm_80", "compute_90"]
    assert [each.rule for each in found.findings] == ["member-damaged"]
    assert "a.o" in found.findings[0].message


def test_dll() -> None:
    sections = {".nv_fatb": ONE, ".nvFatBi": build.wrapper() + bytes(40)}
    probe = build.pe(sections, ("cudart64_12.dll", "KERNEL32.dll"))
    at = 0x180000000 + probe.index(ONE)
    found = read(build.pe({**sections, ".nvFatBi": build.wrapper(at) + bytes(40)}, ("cudart64_12.dll", "KERNEL32.dll")))
    assert (found.format, found.machine, found.type) == ("pe", "x86_64", "shared")
    assert found.needed == ("cudart64_12.dll", "KERNEL32.dll")
    assert [(row.arch, row.section) for row in found.device_code] == [("sm_90", ".nv_fatb")]
    assert [each.container for each in found.registration.wrappers] == [0]
    assert found.cudart is not None
    assert (found.cudart.linkage, found.cudart.major) == ("dynamic", 12)


def test_bare_files() -> None:
    fatbin, cubin = read(TWO), read(CODE)
    assert (fatbin.format, [row.arch for row in fatbin.device_code]) == ("fatbin", ["sm_80", "compute_90"])
    assert (cubin.format, [row.arch for row in cubin.device_code]) == ("cubin", ["sm_90"])
    assert cubin.toolkits == ("13.0",)
    assert [each.container for each in cubin.entries] == [None]


def test_code_that_hides() -> None:
    file = build.Elf(sections=[build.Section(name=".rodata", data=b"text...." + TWO + CODE + b"more")])
    found = read(file.build())
    assert [(row.arch, row.section, row.count) for row in found.device_code] == [
        ("sm_80", ".rodata", 1),
        ("compute_90", ".rodata", 1),
        ("sm_90", ".rodata", 1),
    ]
    assert {each.rule for each in found.findings} == {"fatbin-elsewhere", "cubin-without-container"}


def test_code_that_hides_where_only_a_whole_search_looks() -> None:
    file = build.Elf(sections=[build.Section(name=".text", data=bytes(16) + ONE, flags=build.ALLOC | build.EXEC)])
    assert read(file.build()).device_code == ()
    assert [row.arch for row in read(file.build(), whole=True).device_code] == ["sm_90"]


def test_amd_code_is_named() -> None:
    file = build.Elf(sections=[build.Section(name=".hip_fatbin", data=b"__CLANG_OFFLOAD_BUNDLE__" + bytes(64))])
    assert [each.rule for each in read(file.build()).findings] == ["amd-code"]


def test_sections_over_the_same_bytes_are_read_once() -> None:
    file = build.library(ONE)
    data = bytearray(file.build())
    (table,) = struct.unpack_from("<Q", data, 0x28)
    row = bytes(data[table + 128 : table + 192])  # .nv_fatbin's
    data[table + 64 : table + 128] = row  # .text becomes another .nv_fatbin
    found = read(bytes(data))
    assert found.registration.containers == 1
    assert "sections-overlap" in [each.rule for each in found.findings]


def test_platform_of_arm_servers() -> None:
    file = build.dynamic(runpath="/usr/local/cuda-12.6/targets/sbsa-linux/lib")
    file.machine = 183
    platform = read(file.build()).platform
    assert platform is not None
    assert platform.name == "sbsa"
    assert "targets/sbsa-linux" in platform.evidence


@pytest.mark.parametrize("data", [b"", b"MZ", b"text", b"\x7fELF", b"!<arch>\nnonsense" + b"x" * 60])
def test_what_is_none_of_it(data: bytes) -> None:
    with pytest.raises(MalformedError):
        read(data)


def test_empty_room_among_device_code_is_not_device_code() -> None:
    found = read(build.library(ONE + bytes(100_000), ONE).build())
    code = sum(part.bytes for part in found.parts if part.name == "device code")
    assert code == 2 * len(ONE)
    assert sum(part.bytes for part in found.parts if part.name == "other") > 100_000
