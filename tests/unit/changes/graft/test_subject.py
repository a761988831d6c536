"""Two builds of the same cubin: whether they hold the same code, and if not, why."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from cuwheel.changes.graft import fitting, subject
from cuwheel_core.device_code import cubin
from tests.fixtures import manifest

CUBIN = (manifest.HERE / "bin" / "bare-130.cubin").read_bytes()
SHARED_MEMORY = 0x7000000A  # a type of section that has no bytes in the file, as NOBITS


def held(data: bytes) -> Any:
    entry = SimpleNamespace(kind="cubin")
    interface = cubin.read_cubin("x", data).interface()
    return SimpleNamespace(data=data, subject=SimpleNamespace(name="x"), entry=entry, interface=interface)


def section(name: str) -> Any:
    return next(each for each in cubin.read_cubin("x", CUBIN).elf.headers if each.name.startswith(name))


def changed(at: int) -> bytes:
    return CUBIN[:at] + bytes([CUBIN[at] ^ 0xFF]) + CUBIN[at + 1 :]


def test_other_instructions_are_named() -> None:
    code = section(".text.")
    one, other = held(CUBIN), held(changed(code.offset))
    assert not subject.same_code(one, other)
    found = subject.code_difference(one, other)
    assert found == (None, (code.name.removeprefix(".text."),), (), ())
    assert fitting.why_other_code(one, other).startswith(": the instructions of 1 function differ, such as ")


def test_another_compiler_explains_it() -> None:
    code = section(".text.")
    version = CUBIN[CUBIN.index(b", V13.0.") + 3 :].split(b"\0")[0]
    another = changed(code.offset).replace(version, b"13.0.0" + b"1" * (len(version) - 6))
    words = fitting.why_other_code(held(CUBIN), held(another))
    assert words == f": the base's compiler was {version.decode()}, the donor's 13.0.0{'1' * (len(version) - 6)}"


def test_other_data_are_named() -> None:
    data = section(".nv.info")
    words = fitting.why_other_code(held(CUBIN), held(changed(data.offset + data.size - 1)))
    assert words == f": their data differ ({data.name}), as where a path is in it"


def test_a_note_of_the_tool_s_own_call_is_no_difference() -> None:
    note = section(".note.nv.tkinfo")
    assert subject.same_code(held(CUBIN), held(changed(note.offset + note.size - 3)))


def test_shared_memory_has_no_bytes_in_the_file() -> None:
    """It may claim more than the file has, and what lies at its offset is another section's."""
    at = struct.unpack_from("<Q", CUBIN, 40)[0] + 64 * section(".text.").number
    row = list(struct.unpack_from("<IIQQQQIIQQ", CUBIN, at))
    row[1], row[5] = SHARED_MEMORY, 10 * len(CUBIN)
    data = CUBIN[:at] + struct.pack("<IIQQQQIIQQ", *row) + CUBIN[at + 64 :]
    file = cubin.read_cubin("x", data).elf
    assert file.data(file.headers[section(".text.").number], 1 << 30) == b""


@pytest.mark.parametrize("kind", ["ptx", "lto-ir"])
def test_of_other_kinds_nothing_more_is_said(kind: str) -> None:
    one, other = held(CUBIN), held(CUBIN)
    one.entry.kind = kind
    assert fitting.why_other_code(one, other) == ""
