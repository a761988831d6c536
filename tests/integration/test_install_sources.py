"""Where wheels alone are asked for, no code of a package runs: with real indexes, and a source that leaves a mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api, venvs
from cuwheel.errors import ConfigurationError, CuwheelError, MissingExtraError
from cuwheel.verifying import kit
from cuwheel.verifying.request import PackRequest
from tests.integration import index_server
from tests.integration.install_world import sdist, state, versions, wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index_server.clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


class World:
    """An index with `direct`, whose requirement is a source at an address, and `outer`, which requires `direct`."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "the-code-ran"
        backend = f"open({str(self.mark)!r}, 'w').close()"
        project = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        self.source = sdist(folder / "source", "evil", "1.0", {"pyproject.toml": project, "backend.py": backend})
        self.behaviour = index_server.Behaviour.of(self.source)
        self.wheels = folder / "wheels"

    def add(self, url: str) -> None:
        made = [
            wheel(self.wheels, "direct", "1.0", requires=f"evil @ {url}/files/{self.source.name}"),
            wheel(self.wheels, "local", "1.0", requires=f"evil @ {self.source.as_uri()}"),
            wheel(self.wheels, "outer", "1.0", requires="direct"),
            wheel(self.wheels, "elsewhere", "1.0", requires=f"plain @ {url}/files/plain-1.0-py3-none-any.whl"),
            wheel(self.wheels, "further", "1.0", requires="elsewhere"),
            wheel(self.wheels, "plain", "1.0"),
        ]
        self.behaviour.files |= index_server.Behaviour.of(*made).files
        self.url = url


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with index_server.serving(made.behaviour) as url:
        made.add(url)
        yield made


def _refused(world: World, env: Path, wanted: str, **fields: Any) -> str:
    before = state(env)
    with pytest.raises(CuwheelError) as caught:
        api.install(wanted, env=env, **{"indexes": [f"{world.url}/simple"], **fields})
    assert not world.mark.exists()
    assert {each: state(env)[each] for each in before} == before
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("wanted", "option"),
    [
        *(("outer", option) for option in ("", "dry_run", "wheel_only", "no_index", "signers")),
        *((wanted, "dry_run") for wanted in ("direct", "local", "further")),
    ],
)
def test_what_a_wheel_requires_by_an_address_is_refused(
    world: World, env: Path, tmp_path: Path, wanted: str, option: str
) -> None:
    fields: dict[str, Any] = {option: True} if option else {}
    if option == "no_index":
        fields |= {"indexes": (), "find_links": [str(world.wheels)]}
    if option == "signers":
        fields["signers"] = tmp_path / "signers"
        fields["signers"].touch()
    said = _refused(world, env, wanted, **fields)
    assert ("plain" if wanted == "further" else "evil") in said
    assert "cuwheel build" in said


@pytest.mark.parametrize("wanted", ["outer", "further"])
def test_so_it_is_where_only_uv_is_here(world: World, env: Path, monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    if venvs.uv() is None:
        pytest.skip("uv is not installed here")

    def no_pip(_: Path) -> list[str]:
        raise MissingExtraError(["pip"], "this test", "build")

    monkeypatch.setattr(venvs, "pip_for", no_pip)
    assert "cuwheel build" in _refused(world, env, wanted)


def _said(**fields: Any) -> str:
    """Why an install is refused, whether it says so in an answer or by an error."""
    try:
        done = api.install(**fields)
    except CuwheelError as error:
        return error.message
    assert not done.succeeded
    return done.problem or ""


def test_a_source_of_an_index_is_not_built_either(world: World, env: Path) -> None:
    wheel(world.wheels, "needing", "1.0", requires="evil")
    world.behaviour.files |= index_server.Behaviour.of(*world.wheels.iterdir()).files
    assert "evil" in _refused(world, env, "needing")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_requirements_file_takes_wheels_by_their_address_and_no_sources(
    world: World, env: Path, tmp_path: Path, *, dry_run: bool
) -> None:
    listed = tmp_path / "requirements.txt"
    for line in (f"evil @ {world.source.as_uri()}", f"evil @ {world.url}/files/{world.source.name}"):
        listed.write_text(f"plain\n{line}\n")
        with pytest.raises(ConfigurationError, match="cuwheel build"):
            api.install(requirements=listed, env=env, indexes=[f"{world.url}/simple"], dry_run=dry_run)
    for text in ("outer\n", "evil\n", "--no-binary evil\nevil\n"):
        listed.write_text(text)
        assert "evil" in _said(requirements=listed, env=env, indexes=[f"{world.url}/simple"], dry_run=dry_run)
    assert not world.mark.exists()
    listed.write_text(f"plain @ {(world.wheels / 'plain-1.0-py3-none-any.whl').as_uri()}\n")
    done = api.install(requirements=listed, env=env, indexes=[f"{world.url}/simple"], dry_run=dry_run)
    assert done.succeeded
    assert ("plain-1.0" in versions(env)) is not dry_run


def test_a_constraint_does_not_bring_a_source_in(world: World, env: Path, tmp_path: Path) -> None:
    wheel(world.wheels, "needing", "1.0", requires="evil")
    world.behaviour.files |= index_server.Behaviour.of(*world.wheels.iterdir()).files
    (tmp_path / "constraints.txt").write_text(f"evil @ {world.source.as_uri()}\n")
    listed = tmp_path / "requirements.txt"
    listed.write_text("-c constraints.txt\nneeding\n")
    with pytest.raises(CuwheelError, match="evil"):
        api.install(requirements=listed, env=env, indexes=[f"{world.url}/simple"], dry_run=True)
    assert not world.mark.exists()


@pytest.mark.parametrize("wanted", ["local", "outer", "further"])
def test_packing_what_a_wheel_requires_runs_nothing(world: World, tmp_path: Path, wanted: str) -> None:
    given = world.wheels / f"{wanted}-1.0-py3-none-any.whl"
    request = PackRequest(given, to=tmp_path / "kit.pyz", requirements=True, find_links=(world.wheels,), offline=True)
    with pytest.raises(CuwheelError, match="plain" if wanted == "further" else "evil"):
        kit.pack(request, [given], lambda _: [{"name": "import", "kind": "python", "code": f"import {wanted}"}])
    assert not world.mark.exists()


@pytest.mark.parametrize("tool", ["uv", "pip"])
@pytest.mark.parametrize("wanted", ["outer"])
def test_verifying_without_sources_builds_none(
    world: World, monkeypatch: pytest.MonkeyPatch, wanted: str, tool: str
) -> None:
    if tool == "pip":
        monkeypatch.setattr(venvs, "uv", lambda: None)
    answer = api.verify(world.wheels / f"{wanted}-1.0-py3-none-any.whl", find_links=[world.wheels], offline=True)
    assert not answer.succeeded
    assert not world.mark.exists()
