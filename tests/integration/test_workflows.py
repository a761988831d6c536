"""Written workflows: sound for the linters that others use, and played from the plan up to an index and its page."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.building import config
from cuwheel.workflows import rendering, yaml_file
from tests.fixtures import manifest
from tests.integration import build_projects, build_world
from tests.integration.workflow_player import Player, machine, play_gitlab
from tests.unit.delivery import published

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration
_BIN = Path(sys.executable).parent
_GPU = '[tool.cuwheel.ci]\ngpu-runner = ["self-hosted", "gpu"]\n'
_CASES: dict[str, dict[str, Any]] = {
    "pages": {},
    "gpu": {"gpu_runner": ["self-hosted", "gpu"], "cpus": ["x86_64", "aarch64"]},
    "release": {"publish": "release", "gpu_runner": ["gpu"]},
    "public": {"publish": "public", "image": "quay.io/manylinux_cuda/manylinux_2_28_x86_64_cuda13_1:2026.06.30-1"},
    "farm": {"upstream": "ann/foo", "watch": "foo", "index": "https://wheels.example.com"},
    "rebuild": {"watch": "https://git.example.com/foo", "index": "https://a.example", "rebuild": True},
    "none": {"publish": "none", "schedule": ""},
}


@pytest.mark.parametrize("case", _CASES)
def test_the_linters_find_nothing(case: str, tmp_path: Path) -> None:
    table = config.load(None, None, {"ci": _CASES[case]})
    place = tmp_path / ".github" / "workflows"
    place.mkdir(parents=True)
    file = place / "wheels.yml"
    file.write_text(rendering.render("github", table, "cuwheel.toml"))
    schema = [str(_BIN / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(file)]
    done = subprocess.run(schema, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    words = [str(_BIN / "zizmor"), "--offline", "--no-progress", "--format", "json", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout) == [], done.stdout


@pytest.mark.parametrize("case", ["pages", "gpu", "none"])
def test_the_schema_of_gitlab(case: str, tmp_path: Path) -> None:
    table = config.load(None, None, {"ci": _CASES[case], "cuda": ("13.0", "13.4"), "python": ("3.11", "3.12")})
    file = tmp_path / ".gitlab-ci.yml"
    file.write_text(rendering.render("gitlab", table))
    words = ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", str(file)]
    done = subprocess.run(
        [str(_BIN / "check-jsonschema"), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout


def test_cibuildwheel_reads_its_tables(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\nname = "foo"\nversion = "1"\n[build-system]\nrequires = []\n'
        '[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\npython = ["3.11", "3.12"]\n'
    )
    assert api.ci("cibuildwheel", source=tmp_path, write=True).written
    words = [str(_BIN / "cibuildwheel"), "--platform", "linux", "--archs", "x86_64", "--print-build-identifiers"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["cp311-manylinux_x86_64", "cp312-manylinux_x86_64"], done.stderr
    project.write_text(project.read_text().replace("repair-wheel-command", "repair-wheel-commands"))
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0  # its own checks look at every key


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[str]:
    """What was deployed to Pages, served."""
    folder = tmp_path / "pages"
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def _player(repository: Path, tmp_path: Path, pages: str, cache: Path, **more: Any) -> Player:
    answer = api.ci("github", source=repository, write=True)
    assert answer.written
    text = (repository / ".github" / "workflows" / "wheels.yml").read_text()
    overrides = {"CUWHEEL": "cuwheel[build]", "CUWHEEL_CACHE": str(cache)}
    return Player(
        workflow=yaml_file.load(text, "wheels.yml"),
        repository=repository,
        scratch=tmp_path,
        environ=machine(),
        overrides=overrides,
        pages_url=pages,
        **more,
    )


def test_the_scripts_of_gitlab_are_played(tmp_path: Path, pages: str) -> None:
    repository, world = _project(tmp_path), build_world.World(folder=tmp_path)
    world.with_toolkits("13.0", "13.4")
    (tmp_path / "pages").mkdir()
    assert api.ci("gitlab", source=repository, write=True).written
    pipeline = yaml_file.load((repository / ".gitlab-ci.yml").read_text(), "x")
    environ = machine(CUWHEEL="cuwheel[build]", CUWHEEL_CACHE=str(world.store), CI_PAGES_URL=pages)
    ran = play_gitlab(pipeline, repository, tmp_path, environ)
    assert all(each.status == 0 for each in ran), "\n".join(f"{each.job}\n{each.output}" for each in ran)
    index = tmp_path / "work" / "pages" / "public"
    assert [each.split("-")[1] for each in published.names(index, "simple/bare")] == ["1.0+cu130", "1.0+cu134"]
    assert (index / "index.html").exists()
    assert api.publish_check(index).findings == ()


def _project(tmp_path: Path) -> Path:
    """Which packs libraries that were compiled before, for two CUDA versions."""
    repository = tmp_path / "repository"
    build_projects.prebuilt(repository)
    for digits in ("130", "134"):
        shutil.copy(manifest.HERE / "bin" / f"plain-{digits}.so", repository / f"kernel{digits}.so")
    project = repository / "pyproject.toml"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = project.read_text().replace("gate = {", "gate = { enabled = false,")
    text = text.replace('cuda = "13.0"', f'cuda = ["13.0", "13.4"]\npython = ["{version}"]')
    project.write_text(f"{text}\n{_GPU}")
    return repository


def _all_good(player: Player, jobs: dict[str, str]) -> None:
    told = "\n".join(f"{each.job}, {each.step}: {each.status}\n{each.output}" for each in player.ran)
    assert jobs == dict.fromkeys(player.workflow["jobs"], "success"), told


def test_played_up_to_an_index_and_its_page(tmp_path: Path, pages: str) -> None:
    repository = _project(tmp_path)
    world = build_world.World(folder=tmp_path)
    world.with_toolkits("13.0", "13.4")
    inputs = {"cuda": "13.0,13.4", "machines": "h100", "ref": ""}
    player = _player(repository, tmp_path, pages, world.store, inputs=inputs)
    (tmp_path / "pages").mkdir()
    _all_good(player, player.play())
    steps = {(each.job, each.step) for each in player.ran}
    written = {
        (name, step["name"]) for name, job in player.workflow["jobs"].items() for step in job["steps"] if "run" in step
    }
    assert steps == written
    index = tmp_path / "pages"
    assert published.page(index, "simple")["projects"][0]["name"] == "bare"
    assert [each.split("-")[1] for each in published.names(index, "simple/bare")] == ["1.0+cu130", "1.0+cu134"]
    assert (index / "index.html").exists()
    assert api.publish_check(index).findings == ()
    assert {each.name for each in (tmp_path / "artefacts").glob("proof-*/*")} == {"proof.json"}
