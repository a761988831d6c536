"""An index of one's own beside those that pip or uv is configured with: one rule for where a name comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.errors import NetworkError, UnavailableError
from cuwheel.network import venvs
from cuwheel_core.errors import CuwheelError, UnreadableError
from tests.integration.index_server import Behaviour, clean_environment, serving
from tests.integration.install_world import versions, wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LINUX = "py3-none-linux_x86_64"


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    found = clean_environment(monkeypatch, tmp_path)
    found(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    return found


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


@pytest.fixture
def indexes(tmp_path: Path, given: Callable[..., None]) -> Iterator[tuple[str, str]]:
    """`own` has subject and helper; the one that everybody has offers newer files of those names, and `common`."""
    own, others = tmp_path / "own", tmp_path / "others"
    mine = [
        wheel(own, "subject", "1.0", library="plain-130.so", tag=LINUX, requires="common>=1"),
        wheel(own, "helper", "1.0"),
    ]
    theirs = [
        wheel(others, "subject", "9.0", "raise RuntimeError('a stranger')", library="plain-130.so", tag=LINUX),
        wheel(others, "helper", "9.0", "raise RuntimeError('a stranger')"),
        wheel(others, "common", "1.0", requires="helper"),
    ]
    with serving(Behaviour.of(*mine)) as first, serving(Behaviour.of(*theirs)) as second:
        given(PIP_INDEX_URL=f"{second}/simple")
        yield first, second


def _install(env: Path, *indexes: str, **fields: Any) -> Any:
    return api.install("subject", env=env, indexes=list(indexes), on=["h100"], **fields)


def test_a_name_comes_from_the_own_index_and_others_from_the_configured(env: Path, indexes: tuple[str, str]) -> None:
    own, others = indexes
    done = _install(env, f"{own}/simple")
    assert done.succeeded, done
    assert {each.name: (each.to, each.index) for each in done.changes} == {
        "subject": ("1.0", f"{own}/simple"),
        "helper": ("1.0", f"{own}/simple"),
        "common": ("1.0", f"{others}/simple"),
    }
    assert versions(env) >= {"subject-1.0", "helper-1.0", "common-1.0"}
    found = api.find("subject", indexes=[f"{own}/simple"], on=["h100"])
    assert {(each.version, each.index) for each in found.candidates} == {("1.0", f"{own}/simple")}
    assert {each.index for each in api.find("common", indexes=[own], on=["h100"]).candidates} == {f"{others}/simple"}


def test_pip_alone_mixes_indexes_and_is_refused(
    env: Path, indexes: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venvs, "uv", lambda: None)
    with pytest.raises(UnavailableError, match=r"helper-9\.0") as caught:
        _install(env, f"{indexes[0]}/simple")
    assert "cuwheel[build]" in caught.value.hint
    assert not {"helper-9.0", "subject-1.0"} & versions(env)


@pytest.mark.parametrize("at", ["", "/", "/simple", "/simple/"])
def test_an_index_with_and_without_simple(env: Path, tmp_path: Path, at: str) -> None:
    wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=LINUX, requires="needed")
    wheel(tmp_path / "dist", "needed", "1.0")
    api.publish([tmp_path / "dist"], to=tmp_path / "index")
    with serving(Behaviour.folder(tmp_path / "index")) as url:
        for place in (f"{url}{at}", f"{tmp_path / 'index'}{at}"):
            assert api.find("subject", indexes=[place], on=["h100"]).succeeded
            assert _install(env, place, dry_run=True).succeeded


def test_an_own_index_that_does_not_answer_is_not_replaced_by_others(env: Path, indexes: tuple[str, str]) -> None:
    with serving(Behaviour()) as gone:
        pass
    with pytest.raises(NetworkError):
        _install(env, f"{gone}/simple")
    with pytest.raises(NetworkError):
        api.find("subject", indexes=[f"{indexes[0]}/simple", f"{gone}/simple"], on=["h100"])
    with serving(Behaviour()) as empty, pytest.raises(UnreadableError, match="is not a package index"):
        _install(env, empty)


def test_a_requirements_file_keeps_the_rule(env: Path, tmp_path: Path, indexes: tuple[str, str]) -> None:
    own, others = indexes
    listed = tmp_path / "requirements.txt"
    listed.write_text("subject\ncommon\n")
    done = api.install(requirements=listed, env=env, indexes=[own], on=["h100"])
    assert done.succeeded, done
    assert {each.name: each.index for each in done.changes} == {
        "subject": f"{own}/simple",
        "helper": f"{own}/simple",
        "common": f"{others}/simple",
    }


def test_what_no_index_has_is_said(env: Path, tmp_path: Path, indexes: tuple[str, str]) -> None:
    made = wheel(tmp_path / "more", "lonely", "1.0", requires="nowhere")
    with serving(Behaviour.of(made)) as url, pytest.raises(CuwheelError, match="nowhere"):
        api.install("lonely", env=env, indexes=[url], on=["h100"])
    assert indexes
