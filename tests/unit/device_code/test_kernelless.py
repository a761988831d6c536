"""Containers without kernels: found where that can change an answer, and nothing more is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel_core.device_code import library, registration
from cuwheel_core.support.buffer import MemoryBuffer
from tests.unit.device_code import build

if TYPE_CHECKING:
    import pytest

    from cuwheel_core.device_code.fatbin import RawEntry, Walk
    from cuwheel_core.device_code.libraries import DeviceCode, Symbols

KERNEL = {"mark": (8, 0, 0)}
NO_PTX = b".version 9.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .u32 counter;\n"
PTX = NO_PTX + b".visible .entry mark() { ret; }\n"


def _cubin(sm: int, *, kernel: bool) -> bytes:
    return build.entry(build.CUBIN, sm, build.cubin(KERNEL if kernel else {}, sm=sm))


def _found(*containers: bytes, strings: bytes = b"nothing of the device\0") -> list[bool]:
    """`strings`: what the host's read-only data holds."""
    made = build.library(*containers)
    made.sections.append(build.Section(name=".rodata", data=strings))
    read = library.read_library(MemoryBuffer("x.so", made.build()), detail="containers")
    return [each.without_kernels for each in read.containers]


def test_machine_code_and_ptx() -> None:
    assert _found(
        build.container(_cubin(75, kernel=False), build.entry(build.PTX, 75, NO_PTX)),
        build.container(build.entry(build.PTX, 80, NO_PTX)),
        build.container(build.entry(build.PTX, 90, PTX)),
        build.container(_cubin(90, kernel=True)),
        build.container(),
    ) == [True, True, False, False, False]


def test_a_variable_that_the_host_registers_decides() -> None:
    only_variable = build.container(build.entry(build.PTX, 80, NO_PTX))
    assert _found(only_variable, strings=b"counter\0") == [False]
    assert _found(only_variable, strings=b"another_counter\0") == [False]  # linkers let it be the end of another
    assert _found(only_variable, strings=b"counters\0") == [True]
    assert _found(only_variable, strings=b"") == [False]  # nothing tells what is registered: all is


def test_every_entry_must_be_without() -> None:
    assert _found(build.container(_cubin(75, kernel=False), _cubin(90, kernel=True))) == [False]
    assert _found(build.container(_cubin(75, kernel=False), build.entry(build.LTO, 90, b"lto"))) == [False]


def test_what_cannot_be_read_counts_as_code() -> None:
    assert _found(build.container(build.entry(build.CUBIN, 75, b"no ELF file at all"))) == [False]
    text = build.Section(name=".text.mark", data=bytes(128), flags=build.ALLOC | build.EXEC)
    stripped = build.Elf(machine=build.CUDA, type=2, osabi=0x41, abi=8, version=1, flags=75 << 8, sections=[text])
    assert _found(build.container(build.entry(build.CUBIN, 75, stripped.build()))) == [False]


def test_of_one_list_the_largest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[RawEntry] = []
    names = registration.names_in_entry

    def counted(walk: Walk, entry: RawEntry, row: DeviceCode) -> Symbols | None:
        read.append(entry)
        return names(walk, entry, row)

    monkeypatch.setattr(registration, "names_in_entry", counted)
    many = [build.container(_cubin(90, kernel=index == 7)) for index in range(20)]
    assert _found(*many, build.container(_cubin(75, kernel=False))) == [False] * 20 + [True]
    assert len(read) == 2


def test_reading_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_ENTRIES_SEARCHED", 3)
    assert _found(*[build.container(_cubin(75, kernel=False))] * 5) == [True, True, True, False, False]
    monkeypatch.setattr(registration, "_LARGE_ENTRY", 16)
    assert _found(build.container(_cubin(75, kernel=False))) == [False]
