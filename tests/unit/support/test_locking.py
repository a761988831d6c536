"""Locks: one holder or several sharers; on a full disk a sentence, or a lock that works all the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cuwheel.support import files, system_calls
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import opening


def full(*_args: object, **_kwargs: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_no_room_for_the_lock(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(UnreadableError, match="No space left on device"), files.folder_lock(tmp_path / "a" / "b"):
            pytest.fail("it was not locked")
    with files.folder_lock(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [(os, "ftruncate"), (system_calls, "write_at")])
def test_no_room_for_the_name_of_its_holder(
    call: tuple[object, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*call, full)
    with (
        files.folder_lock(tmp_path / "a" / "b"),
        pytest.raises(UnreadableError, match="is changing it"),
        files.folder_lock(tmp_path / "a" / "b"),
    ):
        pytest.fail("it was locked twice")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_goes_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mkdir` finds it, and `is_dir` does not any more: whoever held the lock has taken it away."""
    made = Path.mkdir
    refusals = [FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))]

    def mkdir(self: Path, *args: Any, **options: Any) -> None:
        if refusals:
            raise refusals.pop()
        made(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with files.folder_lock(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / "lock").is_file()


@pytest.mark.parametrize("place", ["a", "a/b"])
def test_a_file_in_place_of_its_folder(place: str, tmp_path: Path) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("")
    with pytest.raises(UnreadableError), files.folder_lock(tmp_path / "a" / "b"):
        pytest.fail("it was locked")


def test_one_holder_or_several_who_share(tmp_path: Path) -> None:
    handles = [opening.open_file(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(3)]
    assert system_calls.lock(handles[0], shared=True)
    assert system_calls.lock(handles[1], shared=True)
    assert not system_calls.lock(handles[2])
    for each in handles[:2]:
        os.close(each)
    assert system_calls.lock(handles[2])
    os.close(handles[2])


def test_what_its_holder_wrote_can_be_read(tmp_path: Path) -> None:
    """Windows lets nobody else read bytes that are locked."""
    held, other = (opening.open_file(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert system_calls.lock(held)
    system_calls.write_at(held, b"4711\n", 0)
    assert os.read(other, 32) == b"4711\n"
    os.close(other)
    system_calls.remove_locked(tmp_path / "lock", held)
    assert list(tmp_path.iterdir()) == []
