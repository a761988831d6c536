"""Installs from an index that `publish` wrote, on three simulated machines; and of packages that people use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel import api, venvs
from cuwheel.machine.fleet import Refinement
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state, versions, wheel

if TYPE_CHECKING:
    from pathlib import Path

LINUX = "py3-none-linux_x86_64"
RELEASES = {"3.0": "plain-130.so", "2.0": "plain-124.so", "1.0": "all-124.so"}


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


@pytest.mark.parametrize(
    ("gpu", "driver", "taken", "fallback"),
    [
        ("h100", "580.65.06", "3.0", None),
        ("h100", "550.54.14", "2.0", "older version"),  # a driver for CUDA 12
        ("gtx 1080 ti", "580.65.06", "2.0", "older version"),
        ("v100", "550.54.14", "1.0", "older version"),
    ],
)
def test_each_machine_gets_its_own(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str, driver: str, taken: str, fallback: str | None
) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    for version, library in RELEASES.items():
        wheel(tmp_path / "dist", "subject", version, library=library, tag=LINUX)
    assert api.publish([tmp_path / "dist"], to=tmp_path / "index").succeeded
    before = state(env)
    known = Refinement(driver=driver)
    done = api.install("subject", env=env, indexes=[str(tmp_path / "index")], on=[gpu], refine=known)
    assert done.succeeded, done
    assert (done.packages[0].version, done.fallback) == (taken, fallback)
    assert {each.known_from for each in done.candidates} == {"facts file"}
    assert f"subject-{taken}" in versions(env)
    api.install_undo(env)
    assert state(env) == before


@pytest.mark.download
def test_bitsandbytes_of_a_team_whose_torch_is_newer_than_its_driver() -> None:
    """torch for CUDA 12.4, a driver for 12.2, an RTX 3090: nothing but the wheel's libraries is read."""
    known = Refinement(driver="535.54.03", torch="2.6.0", torch_cuda="12.4", os="linux", cpu="x86_64")
    told = api.find("bitsandbytes>=0.45,<0.50", on=["rtx 3090"], refine=known)
    chosen = next(each for each in told.candidates if each.chosen)
    assert any("BNB_CUDA_VERSION=122" in each for each in chosen.conditions), chosen
    newest = api.find("bitsandbytes>=0.50", on=["rtx 3090"], refine=known)
    assert newest.succeeded


@pytest.mark.download
def test_cupy_is_installed_and_imported(env: Path) -> None:
    done = api.install("cupy-cuda12x", env=env, on=["rtx 3090"], refine=Refinement(driver="550.54.14"))
    assert done.succeeded, done.problem
    assert [each.outcome for each in done.checks if each.name == "import cupy"] == ["passed"]
    assert api.install_undo(env).succeeded
