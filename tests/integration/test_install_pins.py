"""Settings that a package needs on a machine: worked out, seen by the import, written where asked, and taken back."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery import pin_files
from cuwheel.machine.fleet import Refinement
from cuwheel.network import venvs
from cuwheel_core.errors import MalformedError, UnreadableError
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state, wheel

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.delivery.install_answer import Install

CASE_1 = Refinement(torch_cuda="12.4", driver="535.54.03")  # torch for CUDA 12.4, a driver for 12.2
PINNED = "import os\nassert os.environ['BNB_CUDA_VERSION'] == '122'"
DOCKERFILE = "FROM scratch\nCOPY . /app"  # without an end of its last line


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = clean_environment(monkeypatch, tmp_path)
    found(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BNB_CUDA_VERSION", raising=False)


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    libraries = {f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": "plain-124.so" for cuda in ("118", "122")}
    return wheel(tmp_path / "dist", "bitsandbytes", "0.49.0", PINNED, files=libraries).parent


def _install(env: Path, dist: Path, **fields: Any) -> Install:
    fields = {"on": ["h100"], "refine": CASE_1, **fields}
    return api.install("bitsandbytes", env=env, find_links=[str(dist)], no_index=True, **fields)


def test_the_setting_is_said_and_the_import_has_it(env: Path, dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["install", "bitsandbytes", "--env", str(env), "--find-links", str(dist), "--no-index", "--on", "h100"]
    machine = ["--torch-cuda", "12.4", "--driver", "535.54.03"]
    assert main([*words, *machine]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "set BNB_CUDA_VERSION=122" in told
    assert "a link would do too" in told
    assert "ln -s libbitsandbytes_cuda122.so libbitsandbytes_cuda124.so" in told
    assert "--pin activate" in told


def test_every_place_is_written_once_and_taken_back(env: Path, dist: Path, tmp_path: Path) -> None:
    docker, unit = tmp_path / "Dockerfile", tmp_path / "infer.service.d"
    docker.write_text(DOCKERFILE)
    secret = tmp_path / ".env"
    secret.write_text("TOKEN=x\n")
    secret.chmod(0o600)
    before = state(env)
    places = ["activate", "env-file", f"systemd={unit}", "dockerfile"]
    assert _install(env, dist, pin=places, dry_run=True).pinned
    assert (state(env), docker.read_text()) == (before, DOCKERFILE), "a dry run writes nothing"
    done = _install(env, dist, pin=places)
    assert done.succeeded, done
    assert done.pins == {"BNB_CUDA_VERSION": "122"}
    assert docker.read_text().splitlines()[-2] == "ENV BNB_CUDA_VERSION=122"
    assert secret.read_text().splitlines()[2] == "BNB_CUDA_VERSION=122"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (unit / "cuwheel.conf").read_text().splitlines()[1:3] == ["[Service]", "Environment=BNB_CUDA_VERSION=122"]
    shown = subprocess.run(
        ["sh", "-c", f". {env}/bin/activate; printenv BNB_CUDA_VERSION"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "122\n"
    pinned = state(env)
    again = _install(env, dist, pin=places)
    assert (again.written, again.pinned, state(env)) == (False, (), pinned)
    api.install_undo(env)
    assert state(env) == before
    assert docker.read_text() == DOCKERFILE
    assert secret.read_text() == "TOKEN=x\n"
    assert not (unit / "cuwheel.conf").exists()


def test_a_failing_import_takes_the_settings_out_again(env: Path, dist: Path, tmp_path: Path) -> None:
    libraries = {"bitsandbytes/libbitsandbytes_cuda122.so": "plain-124.so"}
    wheel(dist, "bitsandbytes", "0.49.1", "raise ImportError('no')", files=libraries)
    before = state(env)
    done = _install(env, dist, pin=["env-file", "activate"])
    assert done.rolled_back
    assert state(env) == before
    assert not (tmp_path / ".env").exists()


def test_settings_of_several_packages_share_a_block(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_text("A=1\n")
    place = (pin_files.parse_place(f"env-file={path}"),)
    for settings in ({"X_VERSION": "1"}, {"Y_VERSION": "2"}, {"X_VERSION": None, "Y_VERSION": "3"}):
        for each in pin_files.pending_settings(place, tmp_path, settings):
            pin_files.write_settings(each, settings)
    lines = path.read_text().splitlines()
    assert (lines[0], lines[2], len(lines)) == ("A=1", "Y_VERSION=3", 4)
    for each in pin_files.pending_settings(place, tmp_path, {"Y_VERSION": None}):
        pin_files.write_settings(each, {"Y_VERSION": None})
    assert path.read_text() == "A=1\n"
    path.write_text("# >>> cuwheel pins >>>\nA=1\n")
    with pytest.raises(MalformedError, match="not the last"):
        pin_files.pending_settings(place, tmp_path, {"Y_VERSION": "1"})


def test_places_that_cannot_be_written(env: Path, dist: Path, tmp_path: Path) -> None:
    """Known before anything is installed."""
    for each in (env / "bin").glob("activate*"):
        each.unlink()
    with pytest.raises(UnreadableError, match="no activation script"):
        _install(env, dist, pin=["activate"])
    before = state(env)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableError):
        _install(env, dist, pin=[f"env-file={tmp_path}/file/.env"])
    assert state(env) == before


def test_a_torch_that_would_come_along_decides(env: Path, dist: Path) -> None:
    """Nothing is known of torch until it is known which one an installer brings."""
    wheel(dist, "torch", "2.9.0+cu124")
    libraries = {f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": "plain-124.so" for cuda in ("118", "122")}
    wheel(dist, "bitsandbytes", "0.49.2", PINNED, requires="torch", files=libraries)
    told = _install(env, dist, refine=Refinement(driver="535.54.03"), dry_run=True)
    assert told.pins == {"BNB_CUDA_VERSION": "122"}
    wheel(dist, "torch", "2.10.0+cu130")
    refused = _install(env, dist, refine=Refinement(driver="580.65.06"), dry_run=True)
    assert not refused.succeeded
    assert "none for 13.0" in refused.packages[0].why


def test_a_setting_that_is_only_better_is_advice_and_no_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs without it, by minor-version compatibility, is not said to need it: `check` says no such thing."""
    libraries = {f"bitsandbytes/libbitsandbytes_cuda{cuda}.so": "plain-124.so" for cuda in ("122", "124")}
    file = wheel(tmp_path / "dist", "bitsandbytes", "0.49.0", files=libraries)
    words = ["bitsandbytes", "--find-links", str(file.parent), "--no-index"]
    machine = ["--on", "h100", "--torch-cuda", "12.4", "--driver", "535.54.03"]
    assert main(["find", *words, *machine]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "better with BNB_CUDA_VERSION=122: its library for CUDA 12.4, which it would load, is newer" in told
    found = api.find("bitsandbytes", find_links=[str(file.parent)], no_index=True, on=["h100"], refine=CASE_1)
    assert found.candidates[0].chosen
    assert not any("BNB_CUDA_VERSION" in each for each in found.candidates[0].conditions)
    assert api.check(file, on=["h100"], refine=CASE_1).verdicts[0].outcome == found.candidates[0].outcome
