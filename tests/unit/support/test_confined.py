"""Names in other people's folders and archives that lead elsewhere on Windows."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cuwheel.support import confined
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from pathlib import Path

STRANGE = ["C:evil", "c:/evil", "a\\..\\..\\evil", "a/b:stream", "NUL", "a/con.txt", "com1", "a./b", "a /b", "x."]
PLAIN = ["a", "a/b.dll", "a/.hidden", "console.py", "nullable/x", "ä b/c", "com/lpt", "folder/"]


@pytest.mark.parametrize("name", STRANGE)
def test_what_windows_reads_more_into(name: str) -> None:
    assert confined.strange_on_windows(name)


@pytest.mark.parametrize("name", PLAIN)
def test_what_it_takes_as_it_is(name: str) -> None:
    assert not confined.strange_on_windows(name)


@pytest.mark.parametrize("name", STRANGE)
def test_refused_where_it_would_matter(tmp_path: Path, name: str) -> None:
    root = tmp_path.resolve()
    if os.name == "nt":
        with pytest.raises(MalformedError, match="outside"):
            confined.inside(root, name, tmp_path / "source")
        with pytest.raises(MalformedError, match="outside"):
            confined.place_of_member(root, name, tmp_path / "source")
    else:
        assert confined.inside(root, name, tmp_path / "source") == root / name


def test_a_link_or_a_file_is_no_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    assert confined.must_be_a_folder(tmp_path / "folder")
    assert not confined.must_be_a_folder(tmp_path / "none")
    for name in ("file", "link"):
        with pytest.raises(MalformedError, match="not a folder of its own"):
            confined.must_be_a_folder(tmp_path / name)


def test_a_junction_is_no_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' link of a folder has the mode of one."""
    assert confined.must_be_a_folder(tmp_path)
    status = SimpleNamespace(st_mode=tmp_path.stat().st_mode, st_reparse_tag=0xA0000003)
    monkeypatch.setattr(type(tmp_path), "lstat", lambda _: status)
    with pytest.raises(MalformedError, match="not a folder of its own"):
        confined.must_be_a_folder(tmp_path)


def test_folders_are_made_and_none_is_a_link(tmp_path: Path) -> None:
    assert confined.make_folders(tmp_path / "root", "a/b").is_dir()
    assert confined.make_folders(tmp_path / "root", "") == tmp_path / "root"
    (tmp_path / "root" / "file").write_text("")
    with pytest.raises(MalformedError, match="not a folder of its own"):
        confined.make_folders(tmp_path / "root", "file/b")
    if os.name != "nt":
        (tmp_path / "root" / "a" / "link").symlink_to(tmp_path)
        with pytest.raises(MalformedError, match="not a folder of its own"):
            confined.make_folders(tmp_path / "root", "a/link/c")
        assert not (tmp_path / "c").exists()
        (tmp_path / "named").symlink_to("root")  # by the person who asked for it
        assert confined.make_folders(tmp_path / "named", "a/b").is_dir()
