"""`install --compile`: machine code made of PTX on the way in, RECORD is right, and undo brings back what was there."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.network import venvs
from cuwheel.report import install, terminal
from tests.integration import build_world
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state
from tests.unit.changes.slim.packages import fixture, make_wheel

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    build_world.toolkit("13.4")
    kept = tmp_path / "cuwheel-cache"
    kept.mkdir()
    build_world.share_toolkits(kept)
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=kept)
    venvs.make(tmp_path / "env", venvs.find_python())
    make_wheel(tmp_path / "dist", {"foo/__init__.py": b"", "foo/libfoo.so": fixture("ptx-130.so")}, version="1.0")
    return tmp_path / "env"


@pytest.mark.parametrize(("slim", "left"), [(False, {"sm_100", "compute_75", "compute_90"}), (True, {"sm_100"})])
def test_it_is_compiled_on_the_way_in(slim: bool, left: set[str], env: Path, tmp_path: Path) -> None:  # noqa: FBT001
    before = state(env)
    done = api.install(
        "foo", env=env, find_links=[str(tmp_path / "dist")], no_index=True, on=["b200"], compile=True, slim=slim
    )
    assert done.succeeded, done
    assert [(each.file, each.pieces) for each in done.compiled] == [("foo-1.0-py3-none-any.whl", 1)]
    terminal.write(install.document(done, verbose=False), shown := StringIO())
    assert "jit as published" in shown.getvalue()
    (library,) = env.rglob("libfoo.so")
    assert {row.arch for row in api.inspect(library).libraries[0].device_code} == left
    (verdict,) = api.check("foo", on=["b200"], env=env).verdicts
    assert verdict.outcome == "native"
    assert api.install_undo(env).succeeded
    assert state(env) == before


def test_without_a_gpu_it_is_refused(env: Path, tmp_path: Path) -> None:
    nowhere = Machine(name="nowhere", capability=None)
    with pytest.raises(UsageError, match="--compile needs a GPU"):
        api.install("foo", env=env, find_links=[str(tmp_path / "dist")], no_index=True, on=[nowhere], compile=True)
