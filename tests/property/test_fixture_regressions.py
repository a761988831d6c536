"""What fuzzing found, each as the fewest bytes that show it."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code.survey import survey
from cuwheel_core.device_code import library
from cuwheel_core.errors import CuwheelError
from cuwheel_core.wheel.zip_reader import ZipReader
from tests.fixtures import manifest
from tests.fixtures.damage import elf, fatbin
from tests.fuzz.harness import CountingBuffer
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from pathlib import Path

EMPTY_CONTAINER = "50ed55ba01001000" + "00" * 8
FOUND = {
    # Four zero bytes that are not padding: the walk stayed where it was for ever.
    "zero word before something else": EMPTY_CONTAINER + "0000000001000000" + "00" * 8,
}

# A member without a name: zipfile of Python 3.11 cannot say whether it is a folder.
NAMELESS = (
    "504b03041400000000000000210000000000000000000000000000000000504b01021400140000000000000021000000"
    "00000000000000000000000000000000000000000000000000000000504b050600000000010001002e0000001e000000"
    "0000"
)


@pytest.mark.parametrize("name", FOUND)
def test_work_is_bounded(name: str) -> None:
    with contextlib.suppress(CuwheelError):
        library.read_library(CountingBuffer("found", bytes.fromhex(FOUND[name])), detail="entries", search="whole")


def test_padding_is_skipped_to_the_next_container() -> None:
    """The cure must not lose what stands behind such a word."""
    tail = struct.pack("<II", 0, 1) + bytes.fromhex(EMPTY_CONTAINER)
    found = library.read_library(CountingBuffer("found", bytes.fromhex(EMPTY_CONTAINER) + tail), detail="containers")
    assert len(found.containers) == 2


def test_a_member_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(bytes.fromhex(NAMELESS))
    with contextlib.suppress(CuwheelError):
        survey(path)


def _zip(name: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(name, "x")
    return written.getvalue()


@pytest.mark.parametrize("name", [b"\x82.so", b"\xc3\xa9.so", b"x.so"])
def test_names_are_compared_as_installers_compare_them(name: bytes, tmp_path: Path) -> None:
    """One name in two encodings, in the header and in the directory: pip's reader takes it for another name."""
    local, listed = _zip("\xe9.so"), _zip("?" * len(name))
    head = local[: local.index(b"PK\x01\x02")]
    tail = listed[listed.index(b"PK\x01\x02") :].replace(b"?" * len(name), name)
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(head + tail[:-6] + struct.pack("<IH", len(head), 0))
    with contextlib.closing(ZipReader(path)) as reader, zipfile.ZipFile(path) as archive:
        (member,) = reader.members.values()
        try:
            expected = archive.read(member.name)
        except zipfile.BadZipFile:
            with pytest.raises(CuwheelError):
                reader.read(member)
        else:
            assert reader.read(member) == expected


def test_parts_add_up_where_a_hidden_cubin_claims_more_than_there_is() -> None:
    """A damaged offset in the second cubin's tables: it must not count bytes that are not its own."""
    data = (manifest.HERE / "bin" / "hidden-130.so").read_bytes()
    damaged = data[:7466] + b"\xff" * 4 + data[7470:]
    found = library.read_library(CountingBuffer("found", damaged))
    assert sum(part.bytes for part in found.parts) == len(damaged)


def test_a_library_with_code_of_unknown_kinds_alone_is_not_slimmed(tmp_path: Path) -> None:
    """Entries whose kinds nobody knows: nothing that a driver would load, and `slim` asked what it loads."""
    data = bytearray((manifest.HERE / "bin" / "plain-130.so").read_bytes())
    start, size = elf.extent(bytes(data), ".nv_fatbin")
    for entry in fatbin.entries(bytes(data[start : start + size])):
        struct.pack_into("<H", data, start + entry, 0x77)
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    assert not engine.plan(path, "9.0").changes
