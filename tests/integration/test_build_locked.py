"""A locked build needs nothing but its lock and its files: neither an index nor a network."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.fixtures.small_wheel import Wheel
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.build_world import World


@pytest.fixture
def here(tmp_path: Path) -> World:
    """Whose index is a folder, for pip and for uv."""
    index = tmp_path / "index"
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": "/dev/null"}
    uv = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(index), "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(tmp_path / "uv")}
    return world.World(folder=tmp_path, environ={**own, **uv}).with_toolkits("13.0")


@pytest.fixture
def source(here: World) -> Path:
    """Its backend is a package of the index that needs another one."""
    folder = projects.bare(here.folder / "source")
    backend = (folder / "own_backend.py").read_text()
    (folder / "own_backend.py").unlink()
    file = folder / "pyproject.toml"
    text = file.read_text().replace("requires = []", 'requires = ["packed-backend>=1"]')
    text = text.replace('"own_backend"', '"packed_backend"').replace('backend-path = ["."]', "")
    file.write_text(text)
    index = here.folder / "index"
    needed = f"import packed_helper\n{backend}"
    Wheel(name="packed_backend", files={"packed_backend.py": needed}, requires=["packed-helper"]).write(index)
    Wheel(name="packed_helper", files={"packed_helper.py": "VALUE = 1\n"}).write(index)
    return folder


def built(here: World, source: Path, *words: str | Path, **options: Any) -> Any:
    told = here.build(source, *words, **options)
    assert told.status == 0, told.all
    return told.document["jobs"][0]


def fetched(here: World, lock: Path) -> set[str]:
    """The files of a kit for this lock."""
    told = here.cuwheel("toolchain", "fetch", "13.0", "--locked", lock, "--to", here.folder / "kit")
    assert told.status == 0, told.all
    return {each.name for each in (here.folder / "kit").iterdir()}


def test_the_lock_names_what_python_needs_and_an_offline_build_needs_no_more(here: World, source: Path) -> None:
    """It is fetched with the toolkit; and what the lock lacks is said."""
    lock = here.folder / "cuwheel.lock"
    first = built(here, source, "--lock", lock)
    rows = msgspec.toml.decode(lock.read_bytes())["requirements"]
    assert [(row["cuda"], {each["name"].replace("_", "-") for each in row["archive"]}) for row in rows] == [
        ("13.0", {"packed-backend", "packed-helper"})
    ]
    assert all(len(each["sha256"]) == 64 for row in rows for each in row["archive"])
    assert {"packed_backend-1.0-py3-none-any.whl", "packed_helper-1.0-py3-none-any.whl"} <= fetched(here, lock)
    lacking = here.build(source, "--locked", lock, "--require", "packed-helper>=2")
    assert lacking.status == 1
    failure = lacking.document["jobs"][0]["failure"]
    assert "the lock has no packed-helper>=2" in failure["what"]
    assert "cuwheel build --lock" in failure["what"]
    # Nobody has these files now but cuwheel's own cache; and there is no network.
    shutil.rmtree(here.folder / "index")
    shutil.rmtree(here.folder / "uv", ignore_errors=True)
    shutil.rmtree(here.out)
    again = built(here, source, "--locked", lock, "--offline", before=world.confined(network=False))
    assert again["wheel"]["libraries"] == first["wheel"]["libraries"]


@pytest.mark.slow
def test_they_are_carried_along(here: World, source: Path) -> None:
    lock, kit = here.folder / "cuwheel.lock", here.folder / "kit"
    built(here, source, "--lock", lock)
    fetched(here, lock)
    shutil.rmtree(here.folder / "index")
    other = world.World(folder=here.folder / "other", environ=here.environ)
    other.folder.mkdir()
    told = other.build(source, "--locked", kit, "--offline", before=world.confined(network=False))
    assert told.status == 0, told.all
