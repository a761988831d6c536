from __future__ import annotations

import struct

import pytest

from cuwheel_core.device_code import dynamic, elf
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.unit.device_code import build


def read(data: bytes) -> elf.Elf:
    return elf.read_elf(MemoryBuffer("x.so", data))


def test_sections_and_their_roles() -> None:
    file = build.Elf(
        sections=[
            build.Section(name=".text", data=b"code", flags=build.ALLOC | build.EXEC),
            build.Section(name=".rodata", data=b"data"),
            build.Section(name=".nv_fatbin", data=b"fat"),
            build.Section(name=".bss", type=build.NOBITS, size=1 << 40),
            build.Section(name=".symtab", type=build.SYMTAB, data=bytes(24), flags=0),
            build.Section(name=".debug_info", data=b"debug", flags=0),
            build.Section(name=".eh_frame", data=b"eh"),
            build.Section(name=".comment", data=b"GCC: 12", flags=0),
        ]
    )
    found = {each.name: (each.role, each.size) for each in read(file.build()).sections()}
    assert found[".text"] == ("code", 4)
    assert found[".rodata"] == ("data", 4)
    assert found[".nv_fatbin"] == ("device", 3)
    assert found[".bss"] == ("data", 0)
    assert [found[name][0] for name in (".symtab", ".debug_info", ".eh_frame", ".comment")] == [
        "symbols",
        "debug",
        "unwind",
        "other",
    ]


def test_what_the_loader_is_asked_for() -> None:
    file = build.dynamic(
        needed=("libcudart.so.13", "libc.so.6"), soname="libx.so", runpath="$ORIGIN:/opt/cuda", glibc="GLIBC_2.28"
    )
    found = dynamic.read_dynamic(read(file.build()))
    assert found.needed == ("libcudart.so.13", "libc.so.6")
    assert (found.soname, found.runpath, found.rpath) == ("libx.so", ("$ORIGIN", "/opt/cuda"), ())
    assert found.ceiling("GLIBC") == "2.28"
    assert found.ceiling("GLIBCXX") is None


def test_ceilings_are_compared_as_numbers() -> None:
    wanted = ("GLIBC_2.9", "GLIBC_2.17", "GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "CXXABI_1.3.9", "CXXABI_1.3.11")
    found = dynamic.Dynamic(versions=(("libc.so.6", wanted),))
    assert (found.ceiling("GLIBC"), found.ceiling("CXXABI")) == ("2.17", "1.3.11")


def symbols_file() -> build.Elf:
    names = b"\0__cudaRegisterFatBinary\0plain\0"
    rows = bytes(24)
    rows += struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0)
    rows += struct.pack("<IBBHQQ", names.index(b"plain"), 0x12, 0, 3, 0x40, 8)
    return build.Elf(
        sections=[
            build.Section(name=".dynsym", type=build.DYNSYM, data=rows, link=2),
            build.Section(name=".dynstr", type=build.STRTAB, data=names),
        ]
    )


def test_symbols() -> None:
    file = read(symbols_file().build())
    assert [(each.name, each.defined) for each in dynamic.symbols(file)] == [
        ("__cudaRegisterFatBinary", False),
        ("plain", True),
    ]
    found = dynamic.lookup(file, "plain")
    assert found is not None
    assert (found.defined, found.value, found.size) == (True, 0x40, 8)
    assert dynamic.lookup(file, "lain") is None
    assert dynamic.lookup(file, "missing") is None
    assert dynamic.mentions(file, "RegisterFat")


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, b"\x7fELG", "not an ELF"),
        (4, b"\x01", "32-bit"),
        (5, b"\x02", "big-endian"),
        (0x28, struct.pack("<Q", 1 << 63), "cut short"),  # section headers far outside
        (0x3A, struct.pack("<H", 7), "section headers of 7"),
        (0x36, struct.pack("<H", 7), "program headers of 7"),
        (0x3C, struct.pack("<H", 0xFFFE), "more than fit"),
    ],
)
def test_a_damaged_header_is_told(place: int, value: bytes, problem: str) -> None:
    data = bytearray(build.library(build.container()).build())
    data[place : place + len(value)] = value
    with pytest.raises(MalformedError, match=problem):
        read(bytes(data))


def test_an_absurd_count_in_the_first_header() -> None:
    """0 sections means: the number stands in the first header. It may say anything."""
    data = bytearray(build.library(build.container()).build())
    (table,) = struct.unpack_from("<Q", data, 0x28)
    struct.pack_into("<H", data, 0x3C, 0)
    struct.pack_into("<Q", data, table + 32, 1 << 58)
    with pytest.raises(MalformedError, match="more than fit"):
        read(bytes(data))


def test_versions_that_lead_back_to_themselves() -> None:
    file = build.dynamic(needed=("a",), glibc="GLIBC_2.28")
    need = file.sections[1].data
    loop = need[:12] + struct.pack("<I", 0) + need[16:28] + struct.pack("<I", 0)
    file.sections[1].data = struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 0) + loop[16:28] + struct.pack("<I", 0)
    assert dynamic.read_dynamic(read(file.build())).needed == ("a",)


def test_names_cannot_multiply() -> None:
    names = b"\0" + b"n" * 5000
    file = build.Elf(
        sections=[
            build.Section(
                name=".dynsym", type=build.DYNSYM, data=struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0) * 1000, link=2
            ),
            build.Section(name=".dynstr", type=build.STRTAB, data=names),
        ]
    )
    with pytest.raises(MalformedError, match="many times"):
        list(dynamic.symbols(read(file.build())))
