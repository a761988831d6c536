"""Sources that git knows: surveyed and copied, whatever repository the caller stands in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.building import repository, source, trees

if TYPE_CHECKING:
    from pathlib import Path

WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


def committed(folder: Path, **files: str) -> Path:
    folder.mkdir()
    repository.git(folder, "init", "--quiet")
    for name, text in files.items():
        (folder / name).write_text(text)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    repository.git(folder, "add", ".")
    repository.git(folder, *WHO, "commit", "--quiet", "--message", "x", "--allow-empty")


def test_a_build_in_a_hook_of_another_repository_leaves_that_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    other = committed(tmp_path / "other", readme="2")
    commit(other)
    before = repository.git(other, "log", "--format=%H"), repository.git(other, "status", "--porcelain")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    found = source.survey(mine, ".", [])
    trees.copy(found, tmp_path / "copy")
    assert found.files == ("kernel",)
    assert repository.git(tmp_path / "copy", "rev-parse", "HEAD").strip() == found.commit
    assert (repository.git(other, "log", "--format=%H"), repository.git(other, "status", "--porcelain")) == before


def test_a_users_settings_of_git_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COUNT": "1", "KEY_0": "core.excludesFile", "VALUE_0": str(tmp_path / "ignored")}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    (tmp_path / "ignored").write_text("*.bin\n")
    mine = committed(tmp_path / "mine", kernel="1")
    (mine / "data.bin").write_text("x")
    assert source.survey(mine, ".", []).files == ("kernel",)


def test_submodules_are_part_of_it_and_told_of_where_nobody_fetched_them(tmp_path: Path) -> None:
    header = committed(tmp_path / "header", **{"x.h": "int x;"})
    mine = committed(tmp_path / "mine", kernel="1")
    repository.git(mine, *WHO, "submodule", "--quiet", "add", header, "third")
    commit(mine)
    whole = source.survey(mine, ".", [])
    assert "third/x.h" in whole.files
    assert not list(source.findings(whole))
    repository.git(tmp_path, "clone", "--quiet", mine, tmp_path / "plain")
    plain = source.survey(tmp_path / "plain", ".", [])
    (told,) = source.findings(plain)
    assert (told.rule, told.evidence) == ("submodule-not-fetched", ("third",))


@pytest.mark.parametrize("way", ["worktree", "shallow"])
def test_worktrees_and_shallow_clones_are_copied_with_what_history_they_have(tmp_path: Path, way: str) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    place = tmp_path / "place"
    if way == "worktree":
        repository.git(mine, "worktree", "add", "--quiet", place)
    else:
        repository.git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{mine}", place)
    found = source.survey(place, ".", [])
    trees.copy(found, tmp_path / "copy")
    assert found.repository
    assert repository.git(tmp_path / "copy", "status", "--porcelain") == ""
    assert repository.git(tmp_path / "copy", "rev-parse", "HEAD").strip() == found.commit


def test_a_new_tag_is_a_new_input(tmp_path: Path) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    before = source.survey(mine, ".", [])
    repository.git(mine, "tag", "v2.0")
    after = source.survey(mine, ".", [])
    assert (before.sha256, before.commit) == (after.sha256, after.commit)
    assert before.described != after.described == "v2.0"
