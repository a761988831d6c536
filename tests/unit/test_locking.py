"""Locks on a full disk: a sentence, or a lock that works all the same."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NoReturn

import pytest

from cuwheel import locking
from cuwheel.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path


def full(*_args: object, **_kwargs: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_no_room_for_the_lock(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(UnreadableError, match="No space left on device"), locking.locked(tmp_path / "a" / "b"):
            pytest.fail("it was not locked")
    with locking.locked(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_no_room_for_the_name_of_its_holder(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, call, full)
    with (
        locking.locked(tmp_path / "a" / "b"),
        pytest.raises(UnreadableError, match="is changing it"),
        locking.locked(tmp_path / "a" / "b"),
    ):
        pytest.fail("it was locked twice")
    assert list(tmp_path.iterdir()) == []
