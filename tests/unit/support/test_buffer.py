from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support.buffer import SCAN_CHUNK, FileBuffer, MemoryBuffer, SliceBuffer, find, occurrences, string_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cuwheel_core.support.buffer import Buffer


@pytest.fixture(params=["memory", "file", "slice"])
def buffer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Buffer]:
    data = bytes(range(100))
    (tmp_path / "x").write_bytes(data)
    made: dict[str, Callable[[], Buffer]] = {
        "memory": lambda: MemoryBuffer("x", data),
        "slice": lambda: SliceBuffer(MemoryBuffer("x", b"before" + data + b"behind"), 6, 100, "x"),
        "file": lambda: FileBuffer(tmp_path / "x", "x"),
    }
    opened = made[request.param]()
    yield opened
    opened.close()


def test_reads_what_is_there(buffer: Buffer) -> None:
    assert (buffer.size, buffer.name) == (100, "x")
    assert buffer.read(10, 3) == b"\x0a\x0b\x0c"
    assert buffer.read(100, 0) == b""


@pytest.mark.parametrize(("offset", "count"), [(99, 2), (-1, 1), (0, -1), (101, 0), (1 << 62, 1 << 62)])
def test_refuses_what_is_not(buffer: Buffer, offset: int, count: int) -> None:
    with pytest.raises(MalformedError, match="cut short or damaged"):
        buffer.read(offset, count)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="nothing"):
        FileBuffer(tmp_path / "nothing")


def test_a_file_that_shrinks_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    buffer = FileBuffer(path)
    path.write_bytes(bytes(10))
    with pytest.raises(MalformedError):
        buffer.read(0, 50)
    buffer.close()


def test_find_across_chunks() -> None:
    data = bytearray(3 * SCAN_CHUNK)
    places = [0, SCAN_CHUNK - 1, SCAN_CHUNK, 2 * SCAN_CHUNK - 2, 3 * SCAN_CHUNK - 3]
    for place in places:
        data[place : place + 3] = b"abc"
    expected = [at for at in range(len(data) - 2) if data[at : at + 3] == b"abc"]
    assert list(find(MemoryBuffer("x", bytes(data)), b"abc", 0, len(data))) == expected


@pytest.mark.parametrize("filler", [b"\0", b"b", b"ab"], ids=["rare", "only that byte", "often"])
def test_occurrences(filler: bytes) -> None:
    data = filler * 500 + b"xabc" + filler * 300 + b"abc"
    expected = [at for at in range(len(data)) if data.startswith(b"abc", at)]
    assert list(occurrences(data, b"abc", 1)) == expected
    assert list(occurrences(data, b"abc", 1, expected[0] + 1)) == expected[1:]


def test_string_at_ends_where_it_must() -> None:
    buffer = MemoryBuffer("x", b"one\0two" + b"y" * 70_000 + b"\0" + b"z" * 2_000_000)
    assert string_at(buffer, 0, 100) == "one"
    assert string_at(buffer, 4, 6) == "tw"
    assert len(string_at(buffer, 4, buffer.size)) == 70_003
    with pytest.raises(MalformedError, match="a name longer than"):
        string_at(buffer, 80_000, buffer.size)
    assert string_at(buffer, 1 << 40, 1 << 41) == ""


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="the system does not tell where a file has holes")
def test_holes_of_a_file_are_passed_over(tmp_path: Path) -> None:
    """A sparse file of 8 GB has a few kilobytes on the disk; all else need not be read to be known."""
    path, size = tmp_path / "sparse", 8 << 30
    with path.open("wb") as file:
        file.seek(4 << 30)
        file.write(b"here")
        file.truncate(size)
    found = FileBuffer(path)
    assert (4 << 30) - (1 << 20) <= found.stored_from(0) <= 4 << 30
    assert found.stored_from(4 << 30) == 4 << 30
    assert found.stored_from(5 << 30) == size
    found.close()
