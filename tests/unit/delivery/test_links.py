"""A link where a folder of ours is expected: refused before anything is written, and nothing behind it is changed."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.delivery import copying
from cuwheel.delivery.catalogue import Store
from cuwheel_core.errors import MalformedError
from tests.unit.delivery import published

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "victim.txt").write_text("theirs")
    return folder


def unchanged(outside: Path) -> bool:
    return [(each.name, each.read_text()) for each in outside.iterdir()] == [("victim.txt", "theirs")]


def test_catalogues(tmp_path: Path, outside: Path) -> None:
    wheel = published.cuda_wheel(tmp_path / "dist")
    folder = published.catalogue_of(tmp_path / "facts", [wheel])
    shutil.rmtree(folder / "packs")
    (folder / "packs").symlink_to(outside)
    with pytest.raises(MalformedError, match="not a folder of its own"):
        Store(folder).save("2026-11-17")
    assert unchanged(outside)


@pytest.mark.parametrize("name", ["files", "simple", "simple/foo", "cu130", ".cuwheel", ".cuwheel/publishing"])
@pytest.mark.parametrize("first", [True, False], ids=["new", "added"])
def test_published_folders(name: str, first: bool, tmp_path: Path, outside: Path) -> None:  # noqa: FBT001
    index = tmp_path / "index"
    if not first:
        cuwheel.publish(published.cuda_wheel(tmp_path / "dist"), to=index)
        shutil.rmtree(index / name, ignore_errors=True)
    (index / name).parent.mkdir(parents=True, exist_ok=True)
    (index / name).symlink_to(outside)
    with pytest.raises(cuwheel.CuwheelError):
        cuwheel.publish(published.cuda_wheel(tmp_path / "dist", "2.0"), to=index)
    assert unchanged(outside)
    assert (index / name).is_symlink()


def test_copies_of_an_index(tmp_path: Path, outside: Path) -> None:
    index, to = tmp_path / "index", tmp_path / "to"
    cuwheel.publish(published.cuda_wheel(tmp_path / "dist"), to=index)
    copying.copy_index(index, str(to))
    shutil.rmtree(to / "files")
    (to / "files").symlink_to(outside)
    with pytest.raises(MalformedError, match="not a folder of its own"):
        copying.copy_index(index, str(to))
    assert unchanged(outside)
