from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_session_leaves_nothing(place: Path) -> None:
    with session.session_folder() as own:
        assert own.parent == place
        assert os.name == "nt" or own.stat().st_mode & 0o077 == 0  # Windows keeps strangers out by the folder above
    assert not any(place.iterdir())


def test_sessions_at_the_same_time(place: Path) -> None:
    with session.session_folder() as first, session.session_folder() as second:
        assert {first, second} == {each for each in place.iterdir() if each.is_dir()}


def test_what_a_killed_session_left_is_removed(place: Path) -> None:
    left = place / "cuwheel-record-x"
    left.mkdir()
    (left / "environ").write_text("MY_TOKEN=hunter2")
    (place / "cuwheel-record-x.lock").touch()
    with session.session_folder():
        assert not left.exists()


def test_what_may_be_somebody_elses_is_left_alone(place: Path) -> None:
    beginning, link = place / "cuwheel-record-begins", place / "cuwheel-record-link"
    target = place / "target"
    for folder in (beginning, target):
        folder.mkdir()
    (target / "kept").touch()
    (place / "cuwheel-record-link.lock").symlink_to(target / "kept")
    link.symlink_to(target)
    (place / "cuwheel-record-file").touch()
    before = set(place.iterdir())
    with session.session_folder():
        pass
    assert set(place.iterdir()) == before
    assert (target / "kept").exists()
