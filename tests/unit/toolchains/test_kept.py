"""What is kept is told by kind, and removed by age and size; never what cannot be had again."""

from __future__ import annotations

import os
import re
import tarfile
import time
from pathlib import Path

import pytest

import cuwheel
from cuwheel import api
from cuwheel.building import sources
from cuwheel.cli import main
from cuwheel.errors import ConfigurationError, UsageError
from cuwheel.toolchains import store
from cuwheel.toolchains.store import Store

_DAY = 24 * 3600.0
_OLD = ("toolchains/12.4-index-aa/bin/nvcc", "downloads/a.tar", "builds/b1/logs/x.log", "shares/s1/w.whl",
        "sccache/a/b/c", "facts-files/aa/k.json", "pages/p1", "cluster/answers/b")  # fmt: skip
_NEVER = (
    "signed-indexes/i1",
    ".locks/downloads",
    "builds/.locks/b1",
    "mine/thesis.tex",
    "trace/d1/lib.so",
    "cluster/dask/w1",
    "cluster/slots/0.lock",
)
_UNDO = "builds/b2/venv/.cuwheel/slim/0001/originals/1"


def _made(cache: Path, name: str, *, days: float, size: int = 1000) -> Path:
    path = cache / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    then = time.time() - days * _DAY
    for each in (path, *path.parents[: len(path.relative_to(cache).parts) - 1]):
        os.utime(each, (then, then))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for name in (*_OLD, *_NEVER, _UNDO):
        _made(tmp_path, name, days=40)
    _made(tmp_path, "toolchains/13.0-index-bb/bin/nvcc", days=1)
    return tmp_path


def test_all_that_is_old_goes_and_nothing_that_cannot_be_had_again(cache: Path) -> None:
    answer = api.cache(cache=cache, prune=True, older_than=30 * _DAY)
    assert {each for each in _OLD if (cache / each).exists()} == set()
    assert all((cache / each).exists() for each in (*_NEVER, _UNDO, "toolchains/13.0-index-bb/bin/nvcc"))
    assert (answer.freed, len(answer.removed), answer.held) == (8000, 8, ())
    left = {each.name: each.bytes for each in answer.kinds}
    assert left == {"toolkits": 1000, "helpers": 1000, "undo": 1000, "state": 5000, "unknown": 1000}


def test_the_configuration_may_say_how_much_is_left(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path_factory.mktemp("project")
    monkeypatch.chdir(project)
    with pytest.raises(UsageError, match="--prune needs --older-than or --most") as caught:
        api.cache(cache=cache, prune=True)
    assert "cache-limit" in caught.value.hint
    (project / "pyproject.toml").write_text('[tool.cuwheel]\ncache-limit = "3KB"\n')
    assert api.cache(cache=cache, prune=True, dry_run=True).freed == 6000
    (project / "pyproject.toml").write_text('[tool.cuwheel]\ncache-limit = "much"\n')
    with pytest.raises(ConfigurationError, match="cache-limit: 'much' is not a size"):
        api.cache(cache=cache, prune=True)


def test_the_oldest_go_until_it_fits(tmp_path: Path) -> None:
    for days in (1, 2, 3, 4):
        _made(tmp_path, f"downloads/{days}", days=days)
    answer = api.cache(cache=tmp_path, prune=True, most=2500)
    assert [Path(each.path).name for each in answer.removed] == ["4", "3"]
    assert sorted(each.name for each in (tmp_path / "downloads").iterdir()) == ["1", "2"]


def test_a_dry_run_removes_nothing_and_says_the_same(cache: Path) -> None:
    shown = api.cache(cache=cache, prune=True, older_than=30 * _DAY, dry_run=True)
    assert all((cache / each).exists() for each in _OLD)
    done = api.cache(cache=cache, prune=True, older_than=30 * _DAY)
    assert shown.removed == done.removed


def test_while_a_build_runs_only_what_it_cannot_be_using_goes(cache: Path) -> None:
    """The lock is taken as a build takes it, through a file of its own."""
    with Store(cache / "builds").locked("b1"):
        answer = api.cache(cache=cache, prune=True, older_than=30 * _DAY)
    assert {each.kind for each in answer.removed} == {"facts"}
    assert len(answer.held) == 6
    assert all("b1 is held by" in each.why for each in answer.held)
    assert (cache / "toolchains/12.4-index-aa/bin/nvcc").exists()
    assert len(api.cache(cache=cache, prune=True, older_than=30 * _DAY).removed) == 6


def test_what_is_behind_a_link_stays(tmp_path: Path) -> None:
    outside = _made(tmp_path, "outside/file", days=100)
    cache = tmp_path / "cache"
    _made(cache, "downloads/a", days=100)
    (cache / "downloads" / "link").symlink_to(outside.parent)
    (cache / "shares" / "s").mkdir(parents=True)
    (cache / "shares" / "s" / "link").symlink_to(outside.parent)
    api.cache(cache=cache, prune=True, most=0)
    assert outside.exists()
    assert not (cache / "downloads" / "a").exists()


def test_a_toolkit_that_was_used_lately_keeps_its_conda_environment(tmp_path: Path) -> None:
    _made(tmp_path, "toolchains/t/cuwheel-toolchain.json", days=1)
    environment = _made(tmp_path, "conda/t/bin/nvcc", days=900)
    api.cache(cache=tmp_path, prune=True, older_than=30 * _DAY)
    assert environment.exists()


def test_what_an_environment_keeps_to_undo_is_shown(tmp_path: Path) -> None:
    _made(tmp_path / "env", ".cuwheel/slim/0001/originals/1", days=400, size=5000)
    answer = api.cache(cache=tmp_path / "cache", env=tmp_path / "env", prune=True, most=0)
    assert [(each.name, each.bytes) for each in answer.kinds] == [("undo", 5000)]
    assert (tmp_path / "env/.cuwheel/slim/0001/originals/1").exists()


def test_every_folder_of_the_cache_has_a_kind() -> None:
    """A new one would otherwise never be emptied."""
    known = {each.folder for each in store.PLACES}
    found = set()
    for path in Path(cuwheel.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(
            re.findall(r"(?:cache_folder\(\)|\bstore\.folder|\bcache|\bself\.folder) / \"([\w.-]+)[/\"]", text)
        )
    found -= {"src", "uv"}  # of a job, not of the cache
    assert {"toolchains", "builds", "facts-files", "sccache"} <= found
    assert found - known == set(), "give it a row in toolchains/store.py"


@pytest.mark.parametrize("words", [["--prune"], ["--most", "5GB"], ["--dry-run"], ["--prune", "--older-than", "30"]])
def test_half_a_wish_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", *words]) == 2
    assert "hint:" in capsys.readouterr().err or words[-1] == "30"


def test_the_function_refuses_it_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        api.cache(cache=tmp_path, prune=True)


def test_the_table(cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUWHEEL_CACHE", str(cache))
    assert main(["cache", "--prune", "--older-than", "30d"]) == 0
    shown = capsys.readouterr().out
    assert "8 things removed: 8.0 kB" in shown
    assert re.search(r"toolkits +1 +1.0 kB +1 day ago", shown)
    assert Store(cache).all() == ()


def test_an_unpacked_source_was_used_when_it_was_unpacked_and_asked_for(tmp_path: Path) -> None:
    """Its files have the times that the archive gives them: of their release, perhaps years ago."""
    (tmp_path / "foo-1.0").mkdir()
    file = _made(tmp_path / "foo-1.0", "setup.py", days=900)
    with tarfile.open(tmp_path / "foo-1.0.tar.gz", "w:gz") as archive:
        archive.add(file, "foo-1.0/setup.py")
    for _ in range(2):
        sources.unpack_source(tmp_path / "foo-1.0.tar.gz", tmp_path / "cache" / "sources")
        (thing,) = store.things(tmp_path / "cache")
        assert time.time() - thing.used < _DAY
        os.utime(thing.path, (1e9, 1e9))
