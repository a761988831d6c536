"""The names in relocatable objects: read where they decide something, from machine code and from PTX."""

from __future__ import annotations

import struct

from cuwheel_core.device_code import cubin, library
from cuwheel_core.device_code.libraries import Container, Symbols
from cuwheel_core.support.buffer import MemoryBuffer
from tests.unit.device_code import build

PTX = b"""
.version 9.0
.target sm_80
.extern .func  (.param .b32 func_retval0) _Z6helperv
(
)
;
.extern .func quiet(.param .b64 p);
.extern .global .align 8 .b8 state[16];
.extern .shared .align 16 .b8 dynamic[];
.visible .global .align 4 .u32 counter;
.visible .const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.func local() { ret; }
.weak .func  (.param .b32 func_retval0) brought()
{
ret;
}
.visible .entry mark(.param .u64 out) { ret; }
"""


def test_names_in_ptx() -> None:
    assert cubin.ptx_symbols(PTX) == Symbols(
        kernels=("mark",),
        functions=("counter", "table", "brought"),
        wanted=("_Z6helperv", "quiet", "state"),
        variables=("counter", "table"),
    )


def test_names_in_machine_code() -> None:
    names = b"\0mark\0helper\0weak\0local\0value\0"
    symbols = bytes(24)
    for name, info, other, section in (
        (b"mark", 0x12, 0x10, 3),
        (b"helper", 0x12, 0, 0),
        (b"weak", 0x22, 0, 0),
        (b"local", 0x02, 0, 3),
        (b"value", 0x11, 0, 3),
    ):
        symbols += struct.pack("<IBBHQQ", names.index(name + b"\0"), info, other, section, 0, 0)
    tables = [
        build.Section(name=".strtab", data=names, type=build.STRTAB, flags=0),
        build.Section(name=".symtab", data=symbols, type=build.SYMTAB, flags=0, link=1),
        build.Section(name=".text", data=bytes(16)),
    ]
    made = build.Elf(machine=build.CUDA, type=1, abi=8, flags=90 << 8, sections=tables).build()
    assert cubin.read_cubin("x", made).symbols() == Symbols(kernels=("mark",), functions=("value",), wanted=("helper",))


def _containers(*objects: bytes) -> list[Container]:
    data = build.library(build.container(), relocatable=b"".join(objects)).build()
    found = library.read_library(MemoryBuffer("x", data), detail="containers").containers
    return [each for each in found if each.section == "__nv_relfatbin"]


def test_they_are_read_where_objects_differ() -> None:
    code = build.entry(build.CUBIN, 90, build.cubin({"mark": (8, 0, 0)}))
    ptx = build.entry(build.PTX, 80, PTX, isa=(9, 0))
    alike = _containers(build.container(code), build.container(code))
    assert [each.symbols for each in alike] == [None, None]
    first, second, empty = _containers(build.container(code), build.container(ptx), build.container())
    assert first.symbols
    assert first.symbols.kernels == ("mark",)
    assert second.symbols == cubin.ptx_symbols(PTX)
    assert empty.symbols is None


def test_what_cannot_be_read_has_none() -> None:
    broken = build.entry(build.CUBIN, 80, b"\x7fELF" + bytes(60))
    lto = build.entry(build.LTO, 80, b"code")
    made = _containers(build.container(broken), build.container(lto))
    assert [each.symbols for each in made] == [None, None]
