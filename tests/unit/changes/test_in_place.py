"""Folders that are changed in place, and changed copies of them."""

from __future__ import annotations

import os
import shutil
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


@pytest.mark.skipif(os.name == "nt", reason="no pipes in folders there")
@pytest.mark.parametrize("name", ["pipe", "a\nb", "caf\udce9"])
def test_what_cannot_be_copied_is_named_in_a_sentence(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    (folder / "link").symlink_to("nowhere")
    os.mkfifo(folder / "below" / name)
    with pytest.raises(UnreadableError, match="neither a file nor a folder") as found:
        in_place.changed_copy(folder, tmp_path / "out", (), lambda _: Answer(refused=False))
    assert "[(" not in str(found.value)
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


def test_folders_that_cannot_be_copied_are_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in" / "below").mkdir(parents=True)

    def refused(source: str, *_args: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted", source)

    monkeypatch.setattr(shutil, "copystat", refused)
    with pytest.raises(UnreadableError, match=r"could not be copied: .*Operation not permitted") as found:
        in_place.changed_copy(tmp_path / "in", tmp_path / "out", (), lambda _: Answer(refused=False))
    assert "[(" not in str(found.value)
