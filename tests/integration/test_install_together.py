"""`install -r`: packages with CUDA code judged together, the rest passed through, a conflict named in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery import lock_files
from cuwheel.machine.fleet import Refinement
from cuwheel.network import venvs
from tests.integration.index_server import clean_environment
from tests.integration.install_world import FIXTURES, state, versions, wheel

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.delivery.install_answer import Install


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environments") / "env"
    venvs.make(folder, venvs.find_python())
    return folder


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    return tmp_path / "dist"


def _linked(dist: Path, name: str, version: str, soname: str) -> None:
    """With a library for a GPU that needs this one of CUDA's."""
    dist.mkdir(exist_ok=True)
    library = dist / "changed.so"
    library.write_bytes((FIXTURES / "plain-130.so").read_bytes().replace(b"libcudart.so.13", soname.encode()))
    assert soname in api.inspect(library).libraries[0].needed
    wheel(dist, name, version, library=str(library))


def _install(text: str, env: Path, dist: Path, **fields: Any) -> Install:
    path = dist.parent / "requirements.txt"
    path.write_text(f"--no-index\n-f {dist}\n{text}")
    fields = {"on": ["h100"], "refine": Refinement(driver="580.65.06"), "dry_run": True, **fields}
    return api.install(requirements=path, env=env, **fields)


def test_all_are_installed_and_the_rest_is_passed_through(tmp_path: Path, dist: Path) -> None:
    env = tmp_path / "env"
    venvs.make(env, venvs.find_python())
    wheel(dist, "kernels", "2.0", library="all-124.so", requires="helper")
    wheel(dist, "kernels", "1.0", library="plain-130.so", requires="helper")
    wheel(dist, "helper", "1.0")
    wheel(dist, "plain", "3.0")
    wheel(dist, "plain", "4.0")
    text = "kernels\nplain<4 # pure\nnever; python_version < '3'\n"
    told = _install(text, env, dist, on=["12.0"])
    done = _install(text, env, dist, on=["12.0"], dry_run=False)
    assert done.succeeded, done
    assert told.changes == done.changes
    assert [(each.name, each.version, each.fallback) for each in done.packages] == [("kernels", "1.0", "older version")]
    assert versions(env) >= {"kernels-1.0", "helper-1.0", "plain-3.0"}
    again = _install(text, env, dist, on=["12.0"])
    assert (again.changes, again.succeeded) == ((), True)
    before = state(env)
    assert api.install_undo(env).succeeded
    assert state(env) != before
    assert not versions(env) & {"kernels-1.0", "helper-1.0", "plain-3.0"}


def test_two_majors_of_a_library_are_named(empty: Path, dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _linked(dist, "one", "1.0", "libcudart.so.12")
    _linked(dist, "two", "2.0", "libcudart.so.13")
    told = _install("one\ntwo\n", empty, dist)
    assert not told.succeeded
    assert told.problem == (
        "one 1.0 needs libcudart.so.12 and two 2.0 needs libcudart.so.13: "
        "ask for a release of two for CUDA 12, or for another one of one"
    )
    words = ["install", "-r", str(dist.parent / "requirements.txt"), "--env", str(empty), "--on", "h100", "--dry-run"]
    assert main(words) == 1
    assert "one 1.0 needs libcudart.so.12" in " ".join(capsys.readouterr().out.split())


def test_an_older_release_that_goes_with_the_others_is_taken(empty: Path, dist: Path) -> None:
    _linked(dist, "one", "1.0", "libcudart.so.12")
    _linked(dist, "two", "2.0", "libcudart.so.13")
    _linked(dist, "two", "1.9", "libcudart.so.12")
    told = _install("one\ntwo\n", empty, dist)
    assert told.succeeded, told
    assert [(each.name, each.version) for each in told.packages] == [("one", "1.0"), ("two", "1.9")]
    assert (told.fallback, "libcudart.so.13" in told.packages[1].why) == ("older version", True)


def test_one_torch_for_all(empty: Path, dist: Path) -> None:
    for version in ("2.8.0", "2.9.0"):
        wheel(dist, "torch", version, library="plain-130.so")
    wheel(dist, "extension", "1.0", library="plain-130.so", requires="torch==2.8.0")
    told = _install("extension\ntorch\n", empty, dist)
    assert told.succeeded, told
    assert {each.name: each.to for each in told.changes} == {"extension": "1.0", "torch": "2.8.0"}
    refused = _install("extension\ntorch>=2.9\n", empty, dist)
    assert not refused.succeeded
    assert "extension 1.0 requires torch==2.8.0, and torch 2.9.0 is taken" in refused.problem
    wheel(dist, "another", "1.0", library="plain-130.so", requires="torch==2.9.0")
    both = _install("extension\nanother\n", empty, dist)
    assert both.problem == (
        "extension 1.0 requires torch==2.8.0 and another 1.0 requires torch==2.9.0: "
        "ask for another release of extension or of another"
    )


def test_a_torch_that_comes_along_must_run_too(empty: Path, dist: Path, tmp_path: Path) -> None:
    """An installer takes the newest, whatever the driver."""
    for version, library in (("2.8.0", "plain-124.so"), ("2.9.0", "plain-130.so")):
        wheel(dist, "torch", version, library=library)
    wheel(dist, "torch", "2.9.0+cpu")
    wheel(dist, "extension", "1.0", library="plain-124.so", requires="torch")
    place: Any = {"find_links": [str(dist)], "no_index": True}
    for driver, torch in (("550.54.14", "2.8.0"), ("580.65.06", "2.9.0")):
        known = Refinement(driver=driver)
        told = api.install("extension", env=empty, on=["h100"], refine=known, dry_run=True, **place)
        assert {each.name: each.to for each in told.changes} == {"extension": "1.0", "torch": torch}
        assert [each.name for each in told.packages] == ["extension", "torch"]
        assert driver == "580.65.06" or "too old for CUDA 13" in told.packages[1].why
        fleet = tmp_path / "fleet.toml"
        fleet.write_text(f'[[machine]]\nname = "a"\ngpu = "h100"\ndriver = "{driver}"\npython = "3.12"\n')
        api.install("extension", lock=fleet, output=tmp_path / "locks", **place)
        (part,) = lock_files.read_lock(tmp_path / "locks").parts
        assert {each.name: each.version for each in part.files} == {"extension": "1.0", "torch": torch}


def test_packages_without_cuda_that_exclude_each_other(empty: Path, dist: Path) -> None:
    wheel(dist, "base", "1.0")
    wheel(dist, "base", "2.0")
    wheel(dist, "left", "1.0", requires="base==1.0")
    wheel(dist, "right", "1.0", requires="base==2.0")
    told = _install("left\nright\n", empty, dist)
    assert not told.succeeded
    assert "base==1.0" in told.problem
    assert "base==2.0" in told.problem
