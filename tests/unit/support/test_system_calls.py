"""The same on POSIX and on Windows: bytes as they are, at a place, by several at once."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from cuwheel.support import system_calls
from cuwheel_core.support import opening

if TYPE_CHECKING:
    from pathlib import Path

BYTES = b"one\r\ntwo\n\x1athree"  # an end of file for old programs of Windows, and both ends of lines


@pytest.fixture
def handle(tmp_path: Path) -> int:
    return opening.open_file(tmp_path / "file", os.O_RDWR | os.O_CREAT)


def test_no_byte_changes_on_the_way(handle: int, tmp_path: Path) -> None:
    os.write(handle, BYTES)
    os.lseek(handle, 0, os.SEEK_SET)
    assert os.read(handle, 100) == BYTES
    os.close(handle)
    assert (tmp_path / "file").read_bytes() == BYTES
    assert not any(os.get_inheritable(each) for each in [opening.open_file(tmp_path / "file", os.O_RDONLY)])


def test_reading_and_writing_at_a_place(handle: int) -> None:
    assert system_calls.write_at(handle, memoryview(BYTES), 5) == len(BYTES)
    assert system_calls.write_at(handle, b"ab", 1) == 2
    assert opening.read_at(handle, 4, 5) == BYTES[:4]
    room = memoryview(bytearray(1000))
    assert system_calls.read_into(handle, room, 4) == len(BYTES) + 1
    assert bytes(room[: len(BYTES) + 1]) == b"\0" + BYTES
    assert system_calls.read_into(handle, room, 4000) == 0
    os.close(handle)


def test_a_name_for_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    system_calls.rename_over(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"new"
    with pytest.raises(FileNotFoundError):
        system_calls.rename_over(tmp_path / "new", tmp_path / "old")


def test_a_name_that_stays_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file that is in the way, not the new one beside it."""
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")

    def refuse(made: Path, _: Path) -> None:
        raise PermissionError(errno.EACCES, "Access denied", str(made))

    monkeypatch.setattr(type(tmp_path), "replace", refuse)
    monkeypatch.setattr(system_calls, "_PATIENCE_S", 0.0)
    monkeypatch.setattr("os.name", "nt")
    with pytest.raises(PermissionError) as caught:
        system_calls.rename_over(tmp_path / "new", tmp_path / "old")
    monkeypatch.undo()
    assert caught.value.filename == str(tmp_path / "old")
    assert "a program has it open" in str(caught.value)


def test_ours_is_what_we_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert system_calls.is_ours((tmp_path / "file").stat())
    assert system_calls.may_replace((tmp_path / "file").stat())


def test_a_limit_is_not_asked_for_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(BYTES)
    with (tmp_path / "file").open("rb") as file:
        assert opening.read_up_to(file, 1 << 60) == BYTES
    with (tmp_path / "file").open("rb") as file:
        assert opening.read_up_to(file, 5) == BYTES[:5]
    (tmp_path / "file").write_bytes(b"")
    with (tmp_path / "file").open("rb") as file:
        assert opening.read_up_to(file, 1 << 60) == b""
