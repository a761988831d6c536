"""`install --slim`: what the GPU never loads does not get in, RECORD is right, and undo brings back what was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.network import venvs
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state, wheel
from tests.unit.delivery.published import cuda_wheel

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


def test_it_is_cut_on_the_way_in(env: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    made = cuda_wheel(dist, "2.0", "subject", tag="py3-none-any", requires=["needed"])
    wheel(dist, "needed", "1.0")
    before, bytes_before = state(env), made.read_bytes()
    done = api.install("subject", env=env, find_links=[str(dist)], no_index=True, on=["h100"], slim=True)
    assert done.succeeded, done
    (library,) = env.rglob("libsubject.so")
    assert {row.arch for row in api.inspect(library).libraries[0].device_code} == {"sm_90"}
    assert [(each.file, each.bytes_after < each.bytes_before) for each in done.slimmed] == [(made.name, True)]
    (info,) = env.rglob("subject-2.0.dist-info")
    row = next(line for line in (info / "RECORD").read_text().splitlines() if line.startswith("subject/libsubject.so"))
    assert row.split(",")[2] == str(library.stat().st_size)
    assert made.read_bytes() == bytes_before, "the wheel itself is untouched"
    api.install_undo(env)
    assert state(env) == before


def test_a_gpu_must_be_known(env: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path / "dist", "subject", "2.0", library="plain-130.so")
    nowhere = Machine(name="here", capability=None)
    with pytest.raises(UsageError, match="that of here is not known"):
        api.install("subject", env=env, find_links=[str(made.parent)], no_index=True, on=[nowhere], slim=True)
