"""What `install` takes where no wheel of the newest release runs: in order, each with its reason, each switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.machine.fleet import Refinement
from cuwheel.network import venvs
from tests.integration import build_world
from tests.integration.index_server import clean_environment
from tests.integration.install_world import sdist, state, versions, wheel

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.delivery.install_answer import Install

ONLY_AMPERE = "plain-130.so"  # 8.0 and later
PASCAL_TOO = "plain-124.so"
EXAMPLE = build_world.EXAMPLES / "setuptools_nvcc"


@pytest.fixture(autouse=True)
def given(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if request.node.get_closest_marker("slow"):  # a build needs an index, and this machine's settings say which
        return
    found = clean_environment(monkeypatch, tmp_path)
    found(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment for dry runs."""
    folder = tmp_path_factory.mktemp("environments") / "env"
    venvs.make(folder, venvs.find_python())
    return folder


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    return tmp_path / "dist"


def _install(wanted: str, env: Path, dist: Path, **fields: Any) -> Install:
    fields = {"on": ["gtx 1080 ti"], "dry_run": True, **fields}
    return api.install(wanted, env=env, find_links=[str(dist)], no_index=True, **fields)


def _example(folder: Path) -> Path:
    texts = {str(path.relative_to(EXAMPLE)): path.read_text() for path in EXAMPLE.rglob("*") if path.is_file()}
    return sdist(folder, "setuptools_nvcc", "1.0", texts)


def test_an_older_release_that_runs(empty: Path, dist: Path) -> None:
    wheel(dist, "subject", "2.0", library=ONLY_AMPERE)
    wheel(dist, "subject", "1.0", library=PASCAL_TOO)
    taken = _install("subject", empty, dist)
    assert (taken.fallback, taken.packages[0].version) == ("older version", "1.0")
    assert taken.packages[0].why.startswith("2.0: it has no code for the GeForce GTX 1080 Ti")
    assert _install("subject", empty, dist, on=["h100"]).fallback is None
    none = _install("subject", empty, dist, fallback=["source", "cpu"])
    assert not none.succeeded
    assert none.fallback is None
    assert [each.reason for each in none.packages[0].passed] == [
        "not among --fallback",
        "there is no source distribution",
        "no wheel without device code was found, and no package for the CPU is known",
    ]


def test_versions_that_nobody_asked_for_are_named_and_taken_only_if_allowed(empty: Path, dist: Path) -> None:
    wheel(dist, "subject", "3.0", library=PASCAL_TOO)
    wheel(dist, "subject", "2.0", library=ONLY_AMPERE)
    wheel(dist, "subject", "1.0", library=ONLY_AMPERE)
    refused = _install("subject<3", empty, dist)
    assert not refused.succeeded
    assert refused.packages[0].passed[0].reason == "3.0 runs, but it is not <3: --fallback any-version takes it"
    taken = _install("subject<3", empty, dist, fallback=["any-version"])
    assert (taken.fallback, taken.packages[0].version) == ("newer version", "3.0")
    older = _install("subject==2.0", empty, dist, fallback=["any-version"], on=["h100"])
    assert (older.fallback, older.packages[0].version) == (None, "2.0")


@pytest.mark.parametrize("version", ["2.0+cpu", "1.0"])
def test_a_wheel_without_device_code_is_for_the_cpu(empty: Path, dist: Path, version: str) -> None:
    wheel(dist, "subject", "2.0", library=ONLY_AMPERE)
    wheel(dist, "subject", version)
    taken = _install("subject", empty, dist)
    assert (taken.fallback, taken.packages[0].version) == ("cpu build", version)
    assert [each.way for each in taken.packages[0].passed] == ["another version", "source build"]
    assert not _install("subject", empty, dist, fallback=["older", "source"]).succeeded
    assert _install("subject", empty, dist, on=["h100"]).packages[0].version == "2.0"


def test_the_makers_have_another_package_for_the_cpu(empty: Path, dist: Path) -> None:
    wheel(dist, "xgboost", "2.0", library=ONLY_AMPERE)
    wheel(dist, "xgboost_cpu", "2.0")
    taken = _install("xgboost", empty, dist)
    assert (taken.fallback, taken.packages[0].name) == ("cpu build", "xgboost-cpu")
    assert [(each.name, each.to) for each in taken.changes] == [("xgboost-cpu", "2.0")]


def test_a_package_without_any_device_code_is_no_fallback(empty: Path, dist: Path) -> None:
    wheel(dist, "subject", "1.0")
    taken = _install("subject", empty, dist)
    assert taken.succeeded
    assert taken.fallback is None


def test_a_build_is_announced_before_it_is_done(empty: Path, dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = build_world.toolkit("13.0").parents[1]
    monkeypatch.setenv("CUWHEEL_CACHE", str(store))
    wheel(dist, "setuptools_nvcc", "1.0", library="all-124.so")
    _example(dist)
    before = state(empty)
    refine = Refinement(driver="580.65.06")
    told = _install("setuptools-nvcc", empty, dist, on=["12.0"], refine=refine)
    assert told.fallback == "source build"
    plan = told.packages[0].build
    assert plan is not None
    assert (plan.archs, plan.cuda, plan.source) == (("sm_120",), "13.0", "setuptools_nvcc-1.0.tar.gz")
    assert [(each.name, each.to) for each in told.changes] == [("setuptools-nvcc", "1.0")]
    assert state(empty) == before
    off = _install("setuptools-nvcc", empty, dist, on=["12.0"], refine=refine, fallback=["older", "cpu"])
    assert not off.succeeded
    assert off.packages[0].passed[1].reason == "not among --fallback"


def test_what_cannot_be_built_says_why(empty: Path, dist: Path) -> None:
    wheel(dist, "subject", "1.0", library=ONLY_AMPERE)
    sdist(dist, "subject", "1.0", {"pyproject.toml": "[project]\nname = 'subject'\nversion = '1.0'\n"})
    told = _install("subject", empty, dist)
    assert not told.succeeded
    assert "has no CUDA code" in told.packages[0].passed[1].reason
    far = _install("subject", empty, dist, refine=Refinement(cpu="aarch64"))
    assert "aarch64" in far.packages[0].passed[1].reason


@pytest.mark.slow
def test_a_release_is_built_for_exactly_this_machine(
    tmp_path: Path, dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = build_world.World(folder=tmp_path).with_toolkits("13.0")
    monkeypatch.setenv("CUWHEEL_CACHE", str(here.store))
    env = tmp_path / "env"
    venvs.make(env, venvs.find_python())
    wheel(dist, "setuptools_nvcc", "1.0", library="all-124.so")
    _example(dist)
    done = _install("setuptools-nvcc", env, dist, on=["12.0"], refine=Refinement(driver="580.65.06"), dry_run=False)
    assert done.succeeded, done
    assert done.fallback == "source build"
    assert "setuptools_nvcc-1.0" in versions(env)
    (library,) = env.rglob("*_kernel*.so")
    assert {row.arch for row in api.inspect(library).libraries[0].device_code} == {"sm_120"}
    again = api.install_undo(env)
    assert again.succeeded
    assert not list(env.rglob("*_kernel*.so"))
