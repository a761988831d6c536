"""Where wheels alone are asked for, no code of a package runs: with real indexes, and a source that leaves a mark."""

from __future__ import annotations

import pathlib
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.device_code.survey import survey
from cuwheel.errors import ConfigurationError, MissingExtraError
from cuwheel.network import venvs
from cuwheel.proving import kit
from cuwheel.proving.request import PackRequest
from cuwheel.support import process
from cuwheel_core.errors import CuwheelError
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
        *(("outer", option) for option in ("", "dry_run", "fallback", "no_index", "signers")),
        *((wanted, "dry_run") for wanted in ("direct", "local", "further")),
    ],
)
def test_what_a_wheel_requires_by_an_address_is_refused(
    world: World, env: Path, tmp_path: Path, wanted: str, option: str
) -> None:
    fields: dict[str, Any] = {option: True} if option else {}
    if option == "fallback":
        fields["fallback"] = ["older", "cpu"]
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
    (tmp_path / "constraints.txt").write_text("--no-binary evil\n")
    for text in ("outer\n", "evil\n", "--no-binary evil\nevil\n", "-c constraints.txt\nevil\n"):
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
        kit.write_kit(
            request,
            [survey(given, detail="containers")],
            lambda _: [{"name": "import", "kind": "python", "code": f"import {wanted}"}],
        )
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


def test_modules_of_the_current_folder_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: Path) -> None:
    """Python puts the current folder before its own for `-m` and `-c`: that of a project that was just fetched."""
    here, mark = tmp_path / "fetched", tmp_path / "the-code-ran"
    here.mkdir()
    for name in ("pip", "runpy", "venv", "cuwheel", "os", "subprocess", "logging"):
        (here / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(here)
    assert venvs._pip_runner()  # asked only where uv or pip is missing
    for words in (venvs.pip(), venvs.pip_for(venvs.interpreter(env))):
        assert words
        assert process.run([*words, "--version"], timeout=600).stdout.startswith("pip ")
    monkeypatch.setattr(venvs, "uv", lambda: None)
    assert venvs.make(tmp_path / "made", venvs.find_python()).exists()
    assert process.run([*process.module(sys.executable, "cuwheel"), "--version"], timeout=600).stdout
    assert not mark.exists(), mark.read_text()


def test_python_is_started_for_modules_in_one_place() -> None:
    root = pathlib.Path(process.__file__).parents[1]
    said = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r'(executable|python|interpreter)\)?,\s+"-m",', path.read_text(encoding="utf-8"))
    }
    container = {"building/environment.py"}  # by name, inside
    told = {"delivery/editable.py"}  # commands that a person may type
    sent = {"clusters/sent.py"}  # where there is no cuwheel yet, in a folder that was just made
    assert said == container | told | sent


@pytest.mark.parametrize("configured", ["pip.conf", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX", "uv.toml"])
def test_with_an_index_of_its_own_no_other_supplies_requirements(
    configured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: Path
) -> None:
    """Else whoever has the name on another index, with a higher version, is installed."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    made = [
        wheel(tmp_path / "a", "subject", "1.0", requires="helper"),
        wheel(tmp_path / "a", "helper", "1.0"),
    ]
    api.publish(made, to=ours)
    api.publish([wheel(tmp_path / "b", "helper", "9.0")], to=others)
    address = (others / "simple").as_uri()
    if configured == "pip.conf":
        (tmp_path / "pip.conf").write_text(f"[global]\nextra-index-url = {address}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    elif configured == "uv.toml":
        (tmp_path / "uv.toml").write_text(f'[[index]]\nurl = "{address}"\ndefault = true\n')
        monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    else:
        monkeypatch.setenv(configured, address)
    found = api.install("subject", indexes=[str(ours)], env=env, dry_run=True)
    assert {each.name: each.to for each in found.changes} == {"subject": "1.0", "helper": "1.0"}
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[machine]]\nname = "a"\ngpu = "h100"\ndriver = "580.65.06"\npython = "3.11"\nglibc = "2.35"\n')
    lock = tmp_path / "locks" / "pylock.a.toml"
    api.install("subject", indexes=[str(ours)], lock=fleet, output=lock.parent)
    assert "helper-1.0" in lock.read_text()
    assert "helper-9.0" not in lock.read_text()
