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
from tests.integration.workflow_player import Player, machine
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


def _all_good(player: Player, jobs: dict[str, str]) -> None:
    told = "\n".join(f"{each.job}, {each.step}: {each.status}\n{each.output}" for each in player.ran)
    assert jobs == dict.fromkeys(player.workflow["jobs"], "success"), told


def test_played_up_to_an_index_and_its_page(tmp_path: Path, pages: str) -> None:
    """A project that packs libraries which were compiled before, for two CUDA versions."""
    repository = tmp_path / "repository"
    build_projects.prebuilt(repository)
    for digits in ("130", "134"):
        shutil.copy(manifest.HERE / "bin" / f"plain-{digits}.so", repository / f"kernel{digits}.so")
    project = repository / "pyproject.toml"
    project.write_text(project.read_text() + f"\n{_GPU}")
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
