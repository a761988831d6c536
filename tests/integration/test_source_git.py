"""Sources that git knows: surveyed and copied, whatever repository the caller stands in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.building import sources

if TYPE_CHECKING:
    from pathlib import Path

WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


def committed(folder: Path, **files: str) -> Path:
    folder.mkdir()
    sources.git(folder, "init", "--quiet")
    for name, text in files.items():
        (folder / name).write_text(text)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    sources.git(folder, "add", ".")
    sources.git(folder, *WHO, "commit", "--quiet", "--message", "x", "--allow-empty")


def test_a_build_in_a_hook_of_another_repository_leaves_that_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    other = committed(tmp_path / "other", readme="2")
    commit(other)
    before = sources.git(other, "log", "--format=%H"), sources.git(other, "status", "--porcelain")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    found = sources.survey_source(mine, ".", [])
    sources.copy_tree(found, tmp_path / "copy")
    assert found.files == ("kernel",)
    assert sources.git(tmp_path / "copy", "rev-parse", "HEAD").strip() == found.commit
    assert (sources.git(other, "log", "--format=%H"), sources.git(other, "status", "--porcelain")) == before


def test_results_of_an_earlier_build_are_no_source_unless_they_were_committed(tmp_path: Path) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    for name in ("kept", "first"):
        (mine / name).mkdir()
        (mine / name / "build.json").write_text('{"schema": "cuwheel.build/1"}')
        (mine / name / "x.whl").touch()
        if name == "kept":
            commit(mine)
    (mine / "new.cu").touch()
    assert sources.survey_source(mine, ".", []).files == ("kept/build.json", "kept/x.whl", "kernel", "new.cu")


def test_a_users_settings_of_git_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COUNT": "1", "KEY_0": "core.excludesFile", "VALUE_0": str(tmp_path / "ignored")}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    (tmp_path / "ignored").write_text("*.bin\n")
    mine = committed(tmp_path / "mine", kernel="1")
    (mine / "data.bin").write_text("x")
    assert sources.survey_source(mine, ".", []).files == ("kernel",)


def test_submodules_are_part_of_it_and_told_of_where_nobody_fetched_them(tmp_path: Path) -> None:
    header = committed(tmp_path / "header", **{"x.h": "int x;"})
    mine = committed(tmp_path / "mine", kernel="1")
    sources.git(mine, *WHO, "submodule", "--quiet", "add", header, "third")
    commit(mine)
    whole = sources.survey_source(mine, ".", [])
    assert "third/x.h" in whole.files
    assert not list(sources.source_findings(whole))
    sources.git(tmp_path, "clone", "--quiet", mine, tmp_path / "plain")
    plain = sources.survey_source(tmp_path / "plain", ".", [])
    (told,) = sources.source_findings(plain)
    assert (told.rule, told.evidence) == ("submodule-not-fetched", ("third",))


@pytest.mark.parametrize("way", ["worktree", "shallow"])
def test_worktrees_and_shallow_clones_are_copied_with_what_history_they_have(tmp_path: Path, way: str) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    place = tmp_path / "place"
    if way == "worktree":
        sources.git(mine, "worktree", "add", "--quiet", place)
    else:
        sources.git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{mine}", place)
    found = sources.survey_source(place, ".", [])
    sources.copy_tree(found, tmp_path / "copy")
    assert found.repository
    assert sources.git(tmp_path / "copy", "status", "--porcelain") == ""
    assert sources.git(tmp_path / "copy", "rev-parse", "HEAD").strip() == found.commit


def test_a_new_tag_is_a_new_input(tmp_path: Path) -> None:
    mine = committed(tmp_path / "mine", kernel="1")
    before = sources.survey_source(mine, ".", [])
    sources.git(mine, "tag", "v2.0")
    after = sources.survey_source(mine, ".", [])
    assert (before.sha256, before.commit) == (after.sha256, after.commit)
    assert before.described != after.described == "v2.0"
