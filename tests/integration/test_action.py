"""The action's three uses, played as a runner would: with an environment, without one, as in a container job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.delivery.workflows import problems
from tests.fixtures import manifest
from tests.integration import build_projects, build_world
from tests.integration.workflow_player import Player, Ran, machine
from tests.unit.delivery import published

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration
_FILE = build_world.EXAMPLES.parent / "action.yml"
_LINUX = "py3-none-manylinux_2_28_x86_64"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def _play(
    tmp_path: Path, environ: Mapping[str, str] | None = None, *, apart: str = "", **inputs: str
) -> tuple[str, list[Ran], dict[str, Any]]:
    """How it ended, what ran, and the outputs. `apart`: what pip really installs; else the cuwheel of the tests."""
    action = problems.load_yaml(_FILE.read_text(), "action.yml")
    given = {name: each.get("default", "") for name, each in action["inputs"].items()} | inputs
    runner = tmp_path / "runner"
    runner.mkdir(exist_ok=True)
    if apart:
        given["cuwheel"] = apart
    elif not (runner / "cuwheel").exists():
        (runner / "cuwheel").symlink_to(sys.prefix)
    outputs = {name: each["value"] for name, each in action["outputs"].items()}
    job = {"permissions": {}, "outputs": outputs, "steps": [{"uses": "actions/checkout@v"}, *action["runs"]["steps"]]}
    after = {"needs": "use", "permissions": {}, "steps": [{"name": "after", "run": 'echo "$BUILT"', "env": {}}]}
    after["steps"][0]["env"]["BUILT"] = "${{ needs.use.outputs.built }}"  # type: ignore[index]
    player = Player(
        workflow={"jobs": {"use": job, "after": after}},
        repository=tmp_path / "repository",
        scratch=tmp_path,
        environ=environ or machine(),
        inputs=given,
    )
    ended = player.play()
    *ran, last = player.ran
    return ended["use"], (ran if ended["use"] == "success" else player.ran), {"built": last.output.strip()}


def _told(ran: list[Ran]) -> str:
    return "\n".join(f"{each.step}: {each.status}\n{each.output}" for each in ran)


@pytest.mark.slow
def test_gate_lets_pass_what_is_as_it_should_be(tmp_path: Path, workspace: Path) -> None:
    published.cuda_wheel(workspace / "dist", "1.0", tag=_LINUX)
    more = {"on": "h100,l40", "max-size": "1MB", "archs": "sm_80,sm_90,compute_90"}
    ended, ran, _ = _play(tmp_path, None, use="gate", **more)
    assert ended == "success", _told(ran)
    assert [each.step for each in ran] == ["Install cuwheel apart", "Judge the wheels"]
    assert "| **h100** 9.0 | ✅ native" in ran[-1].summary
    assert "::error" not in ran[-1].output


def test_gate_says_what_is_wrong_where_people_look(tmp_path: Path, workspace: Path) -> None:
    """On the pull request, in the summary, in files; what a wheel says is never taken for a command."""
    published.cuda_wheel(workspace / "dist", "1.0", tag=_LINUX)
    published.cuda_wheel(workspace / "dist", "1.1", library="all-124.so", tag=_LINUX)
    ended, ran, _ = _play(tmp_path, use="gate", on="v100", wheels="dist/foo-1.0*.whl dist/foo-1.1*.whl")
    assert (ended, ran[-1].status) == ("failure", 1), _told(ran)
    lines = ran[-1].output.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("::stop-commands::"))
    end = lines.index(f"::{lines[begin].removeprefix('::stop-commands::')}::")
    assert not [line for line in (*lines[:begin], *lines[begin + 1 : end]) if line.lstrip().startswith("::")]
    (error,) = [line for line in lines[end + 1 :] if line.startswith("::error ")]
    assert error.startswith(f"::error file=dist/foo-1.0-{_LINUX}.whl,title=cuwheel no-code-for-gpu::foo 1.0: v100: ")
    assert "| **v100** Tesla V100 7.0 | ❌ fails error 209 |" in ran[-1].summary
    (work,) = (tmp_path / "work").glob("use-*")
    assert {each.name for each in (work / "cuwheel-report").iterdir()} == {
        *("summary.md", "annotations.txt", "junit.xml", "check.sarif"),
    }


@pytest.mark.slow
def test_gate_without_files_shows_nothing_of_an_earlier_one(tmp_path: Path, workspace: Path) -> None:
    report = workspace / "cuwheel-report"
    report.mkdir()
    (report / "summary.md").write_text("of another run")
    (report / "annotations.txt").write_text("::error::of another run\n")
    (report / "kept.txt").touch()
    ended, ran, _ = _play(tmp_path, use="gate", on="h100")
    assert (ended, ran[-1].status, ran[-1].summary) == ("failure", 4, ""), _told(ran)
    assert "dist/*.whl: no such file" in ran[-1].output
    assert "another run" not in ran[-1].output
    (work,) = (tmp_path / "work").glob("use-*")
    assert (work / "cuwheel-report" / "kept.txt").exists()


def test_a_use_that_there_is_not(tmp_path: Path, workspace: Path) -> None:
    workspace.joinpath("x").touch()
    ended, ran, _ = _play(tmp_path, use="gates")
    assert (ended, ran[-1].status) == ("failure", 2)
    assert "::error title=cuwheel::use is one of gate, install, pick-up-or-build" in ran[-1].output


def _index(tmp_path: Path) -> str:
    """1.0 runs on an H100, 1.1 does not."""
    for version, library in (("1.0", "plain-130.so"), ("1.1", "family-130.so")):
        api.publish(
            published.cuda_wheel(tmp_path / "built", version, library=library, tag=_LINUX), to=tmp_path / "index"
        )
    return str(tmp_path / "index" / "simple")


def _env(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def _installed(env: Path) -> list[str]:
    return sorted(path.name for path in env.glob("lib/python*/site-packages/*.dist-info"))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["the active one", "the job's Python", "the one that is named"])
def test_install_goes_into_the_environment_of_the_job(tmp_path: Path, workspace: Path, which: str) -> None:
    """And says which release it fell back to."""
    workspace.joinpath("x").touch()
    env, other = _env(tmp_path / "env"), _env(tmp_path / "other")
    environ, inputs = machine(), {"on": "h100", "name": "foo", "index": _index(tmp_path)}
    first = other if which == "the active one" else env
    environ["PATH"] = f"{first / 'bin'}{os.pathsep}{environ['PATH']}"
    if which == "the active one":  # as `uv venv` and a line in $GITHUB_ENV leave it
        environ["VIRTUAL_ENV"] = str(env)
    if which == "the one that is named":
        environ["VIRTUAL_ENV"] = str(other)
        inputs["env"] = str(env)
    ended, ran, _ = _play(tmp_path, environ, use="install", **inputs)
    assert ended == "success", _told(ran)
    assert _installed(env) == ["foo-1.0.dist-info"]
    assert _installed(other) == []
    assert "1.1" in ran[-1].summary
    assert "foo 1.0" in ran[-1].summary


@pytest.mark.slow
@pytest.mark.parametrize("there", ["a wheel that runs", "one that does not", "none"])
def test_pick_up_or_build(tmp_path: Path, workspace: Path, there: str) -> None:
    shutil.rmtree(workspace)
    build_projects.prebuilt(workspace)
    shutil.copy(manifest.HERE / "bin" / "plain-130.so", workspace / "kernel130.so")
    project = workspace / "pyproject.toml"
    text = project.read_text().replace("gate = {", "gate = { enabled = false,")
    project.write_text(text.replace('cuda = "13.0"', f'cuda = "13.0"\npython = ["{_PYTHON}"]'))
    library = "plain-130.so" if there == "a wheel that runs" else "family-130.so"
    name = "bare" if there != "none" else "else"
    wheel = published.cuda_wheel(tmp_path / "built", "1.0", name=name, library=library, tag=_LINUX)
    api.publish(wheel, to=tmp_path / "index")
    env = _env(tmp_path / "env")
    world = build_world.World(folder=tmp_path).with_toolkits("13.0")
    environ = machine(VIRTUAL_ENV=str(env), CUWHEEL_CACHE=str(world.store))
    more = {"name": "bare", "index": str(tmp_path / "index" / "simple"), "on": "h100"}
    ended, ran, outputs = _play(tmp_path, environ, use="pick-up-or-build", **more)
    assert ended == "success", _told(ran)
    assert outputs == {"built": "false" if there == "a wheel that runs" else "true"}
    assert _installed(env) == ["bare-1.0.dist-info"]
    (work,) = (tmp_path / "work").glob("use-*")
    assert len(list(work.glob("cuwheel-built/*.whl"))) == (outputs["built"] == "true")


@pytest.mark.slow
def test_cuwheel_is_installed_apart(tmp_path: Path, workspace: Path, own_wheels: tuple[Path, Path]) -> None:
    """Into an environment of its own, by pip, from a wheel."""
    workspace.joinpath("x").touch()
    env = _env(tmp_path / "env")
    environ = machine(VIRTUAL_ENV=str(env))
    more = {"on": "h100", "name": "foo", "index": _index(tmp_path)}
    core, tool = own_wheels
    for _ in range(2):  # the second use of a job takes what is there
        ended, ran, _outputs = _play(tmp_path, environ, apart=f"{core}\n{tool}[build]", use="install", **more)
        assert ended == "success", _told(ran)
    assert _installed(env) == ["foo-1.0.dist-info"]
    assert not (tmp_path / "runner" / "cuwheel").is_symlink()
