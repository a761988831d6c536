"""Folders that are changed in place, and changed copies of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

from cuwheel.changes import in_place
from cuwheel.wheel import journal_file
from cuwheel_core.errors import UnreadableError
from tests.unit.changes.slim.packages import fixture

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.changes.in_place import Layout


class Answer(Struct):
    refused: bool


def test_what_stays_is_a_copy_too(tmp_path: Path) -> None:
    """Whoever changes it must not change the original."""
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("changed.so", "stays.so"):
        (folder / name).write_bytes(b"before")

    def change(tree: Layout) -> Answer:
        (tree.root / "new").write_bytes(b"after")
        (tree.root / "new").replace(tree.root / "changed.so")
        return Answer(refused=False)

    in_place.changed_copy(folder, output, {"changed.so", "stays.so"}, change)
    assert {each.name: each.read_bytes() for each in output.iterdir()} == {
        "changed.so": b"after",
        "stays.so": b"before",
    }
    assert not (output / "stays.so").samefile(folder / "stays.so")
    assert (folder / "changed.so").read_bytes() == b"before"


def test_no_copy_where_nothing_could_be_changed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    assert in_place.changed_copy(folder, tmp_path / "out", (), lambda _: Answer(refused=True)).refused
    assert list(tmp_path.iterdir()) == [folder]


def test_what_a_journal_further_down_keeps_is_not_changed(tmp_path: Path) -> None:
    """It was slimmed by itself, and its originals come back by its own undoing."""
    kept = tmp_path / "within" / journal_file.FOLDER / "slim" / "0001" / "originals" / "1"
    kept.parent.mkdir(parents=True)
    for path in (kept, tmp_path / "within" / "x.so"):
        path.write_bytes(fixture("all-124.so"))
    libraries, _, _ = in_place.read_libraries(in_place.layout_of_folder(tmp_path))
    assert [each.path for each in libraries] == ["within/x.so"]


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta", ".cuwheel/slim/0001"])
def test_a_folder_is_locked_with_what_is_changed_as_a_whole(mark: str, tmp_path: Path) -> None:
    (tmp_path / mark).mkdir(parents=True)
    inner = tmp_path / "lib" / "foo"
    inner.mkdir(parents=True)
    for first, second in ((tmp_path, inner), (inner, tmp_path)):
        with (
            journal_file.locked(first),
            pytest.raises(UnreadableError, match="is changing it"),
            journal_file.locked(second),
        ):
            pytest.fail("both were locked")


@pytest.mark.skipif(os.name == "nt", reason="mode bits")
def test_what_anybody_may_put_above_a_folder_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / ".cuwheel" / "slim").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    tmp_path.chmod(0o1777)
    with journal_file.locked(tmp_path), journal_file.locked(tmp_path / "own"):
        assert (tmp_path / "own" / ".cuwheel").is_dir()
