from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.toolchains import store
from cuwheel.toolchains.toolchain import Archive, Installed, Recipe
from cuwheel_core.errors import MalformedError, UnreadableError
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = Recipe(
    provider="index",
    cuda="13.0",
    release="13.0.2",
    platform="linux-x86_64",
    components=("nvcc", "cudart"),
    archives=(
        Archive(kind="wheel", name="nvcc", version="13.0.88", file="nvcc.whl", sha256="a" * 64, url="https://x/"),
    ),
)


def fill(scratch: Path, final: Path) -> Installed:
    (scratch / "root" / "bin").mkdir(parents=True)
    (scratch / "root" / "bin" / "nvcc").write_text("nvcc")
    return Installed(
        identity=RECIPE.identity,
        provider="index",
        cuda="13.0",
        release="13.0.2",
        version="13.0.88",
        platform="linux-x86_64",
        components=("nvcc", "cudart"),
        folder=str(final),
        root=str(final / "root"),
        size=4,
    )


def refuse(_scratch: Path, _final: Path) -> Installed:
    pytest.fail("it was made again")


@pytest.fixture
def there(tmp_path: Path) -> store.Store:
    return store.Store(tmp_path)


def test_made_once_and_found_again(there: store.Store) -> None:
    made = there.make(RECIPE, fill)
    assert there.all() == (made,)
    assert there.make(RECIPE, refuse) == made
    assert there.find(RECIPE.identity) == made
    there.remove(made)
    assert there.all() == ()
    there.remove(made)  # gone already
    assert list(there.toolchains.iterdir()) == []


def test_without_its_marker_it_is_not_there(there: store.Store) -> None:
    made = there.make(RECIPE, fill)
    marker = next(there.toolchains.glob("*/cuwheel-toolchain.json"))
    for text in (None, "", "{}", marker.read_text()[:40]):
        marker.unlink() if text is None else marker.write_text(text)
        assert there.all() == ()
    assert there.make(RECIPE, fill) == made  # over what was left
    assert there.all() == (made,)


def test_without_its_nvcc_it_is_not_there(there: store.Store) -> None:
    there.make(RECIPE, fill)
    next(there.toolchains.glob("*/root/bin/nvcc")).unlink()
    assert there.all() == ()


@systems.NO_MODES
def test_one_that_cannot_be_looked_at_is_not_there(there: store.Store) -> None:
    """As in a folder of another user. Even an administrator cannot look where the path is too long."""
    made = there.make(RECIPE, fill)
    marker = next(there.toolchains.glob("*/cuwheel-toolchain.json"))
    marker.write_text(marker.read_text().replace(made.root, "/" + "x" * 5000))
    assert there.all() == ()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(there: store.Store, error: BaseException) -> None:
    def fail(scratch: Path, final: Path) -> Installed:
        fill(scratch, final)
        raise error

    with pytest.raises((UnreadableError, KeyboardInterrupt)) as caught:
        there.make(RECIPE, fail)
    assert list(there.toolchains.iterdir()) == []
    if isinstance(caught.value, UnreadableError):
        assert "No space left" in caught.value.message
        assert "CUWHEEL_CACHE=" in caught.value.hint


def test_what_a_killed_one_began_is_cleared_away(there: store.Store) -> None:
    name = f"13.0-index-{RECIPE.identity[:12]}"
    for folder in (f".making-{name}-abc", name):
        (there.toolchains / folder / "root").mkdir(parents=True)
    there.make(RECIPE, fill)
    assert [path.name for path in there.toolchains.iterdir()] == [name]


def test_addresses_do_not_make_another_toolkit() -> None:
    from msgspec.structs import replace

    mirrored = replace(
        RECIPE, archives=tuple(replace(each, url="file:///m") for each in RECIPE.archives), found_via="m"
    )
    assert mirrored.identity == RECIPE.identity
    changed = replace(RECIPE, archives=tuple(replace(each, sha256="b" * 64) for each in RECIPE.archives))
    assert changed.identity != RECIPE.identity
    assert replace(RECIPE, components=("nvcc",)).identity != RECIPE.identity


@systems.LINUX_PATHS
def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "variable"))
    assert store.open_store().folder == tmp_path / "variable"
    assert store.open_store(tmp_path / "given").folder == tmp_path / "given"
    monkeypatch.delenv("CUWHEEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.open_store().folder == tmp_path / "xdg" / "cuwheel"


def test_a_cache_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnreadableError) as caught:
        store.Store(tmp_path / "file").make(RECIPE, fill)
    assert "CUWHEEL_CACHE=" in caught.value.hint


def test_a_marker_that_names_another_folder_removes_nothing_there(tmp_path: Path) -> None:
    """A cache may be somebody else's: what its markers name is not removed unless it lies in it."""
    there = store.Store(tmp_path / "store")
    made = there.make(RECIPE, fill)
    victim = tmp_path / "victim"
    victim.mkdir()
    for folder in (victim, there.toolchains / ".." / ".." / "victim", there.toolchains):
        with pytest.raises(MalformedError, match="so cuwheel does not remove it"):
            there.remove(replace(made, folder=str(folder)))
    there.remove(replace(made, provider="conda", root=str(victim)))
    assert victim.is_dir()
    assert there.all() == ()
