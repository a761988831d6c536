from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel import files
from cuwheel.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_new_file_takes_the_old_ones_place(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    files.write(target, "new é")
    assert target.read_bytes() == "new é".encode()
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), files.replacing(target) as file:  # noqa: PT012 - the block is what fails
        file.write(b"half")
        _ = 1 / 0
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_copy_is_whole_or_the_old_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)))
    assert files.copy(source, target) == target
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(IsADirectoryError):
        files.copy(tmp_path, target)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_a_refusal_of_the_system_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "missing" / "report.html"
    with pytest.raises(UnreadableError) as caught:
        files.write(target, "text")
    assert str(target) in caught.value.message


def test_the_longest_name_that_a_file_can_have(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 127)
    files.write(target, "text")
    assert target.read_text() == "text"


def test_two_writers_at_once(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    with files.replacing(target) as first, files.replacing(target) as second:
        first.write(b"first")
        second.write(b"second")
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]
