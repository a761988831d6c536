"""Written workflows are sound for the linters that others use, and for cibuildwheel itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.building import config
from cuwheel.delivery.request import CiRequest
from cuwheel.delivery.workflows import rendering
from tests.fixtures.small_wheel import Wheel

pytestmark = pytest.mark.integration
_BIN = Path(sys.executable).parent
_IMAGE = "quay.io/manylinux_cuda/manylinux_2_28_{cpu}_cuda{cuda}:2026.06.30-1"
_CASES: dict[str, dict[str, Any]] = {
    "pages": {},
    "gpu": {"gpu_runner": ["self-hosted", "gpu"], "cpus": ["x86_64", "aarch64"]},
    "release": {"publish": "release", "gpu_runner": ["gpu"]},
    "public": {"publish": "public", "image": _IMAGE, "windows": True},
    "farm": {"upstream": "ann/foo", "watch": "foo", "index": "https://wheels.example.com"},
    "address": {"upstream": "https://git.example.com/foo.git", "windows": True},
    "rebuild": {"watch": "https://git.example.com/foo", "index": "https://a.example", "rebuild": True},
    "none": {"publish": "none", "schedule": ""},
    "repository": {"publish": "public", "install": "ci/cuwheel-1.0-py3-none-any.whl[build]", "upstream": "ann/foo"},
}


def _schema(name: str, *words: str | Path) -> None:
    command = [str(_BIN / "check-jsonschema"), "--builtin-schema", f"vendor.{name}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout


def test_the_linters_find_nothing(tmp_path: Path) -> None:
    """All cases, and this repository's own files, in one call of each: it takes longer to start than to look."""
    place = tmp_path / ".github" / "workflows"
    place.mkdir(parents=True)
    for case, table in _CASES.items():
        text = rendering.render("github", config.find_configuration(None, None, {"ci": table}).table, "cuwheel.toml")
        (place / f"{case}.yml").write_text(text)
    root = Path(__file__).parents[2]
    files = [*sorted(place.iterdir()), *sorted((root / ".github" / "workflows").iterdir())]
    _schema("github-workflows", *files)
    _schema("github-actions", root / "action.yml")
    files.append(root / "action.yml")
    words = [str(_BIN / "zizmor"), "--offline", "--no-progress", "--format", "json", *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert json.loads(done.stdout) == [], done.stdout


def test_the_schema_of_gitlab(tmp_path: Path) -> None:
    for case, table in _CASES.items():
        given = {"ci": table, "cuda": ("13.0", "13.4"), "python": ("3.11", "3.12")}
        (tmp_path / f"{case}.yml").write_text(
            rendering.render("gitlab", config.find_configuration(None, None, given).table)
        )
    _schema("gitlab-ci", "--data-transform", "gitlab-ci", *sorted(tmp_path.iterdir()))


def _identifiers(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What cibuildwheel would build; it looks at every key of its tables first."""
    asked = [str(_BIN / "cibuildwheel"), "--platform", "linux", "--archs", "x86_64", "--print-build-identifiers"]
    return subprocess.run([*asked, *words], cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_what_the_jobs_install_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A requirement of the indexes here, a wheel of the repository, or the address of one."""
    index = tmp_path / "index"
    cuwheel.publish(Wheel(name="cuwheel", version="1.0.1", files={"cuwheel.py": ""}).write(tmp_path / "dist"), to=index)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.setenv(name, (index / "simple").as_uri())
    project = tmp_path / "project"
    (project / "ci").mkdir(parents=True)
    (project / "kernel.cu").touch()

    def found(install: str) -> list[tuple[str, str]]:
        (project / "pyproject.toml").write_text(f'[tool.cuwheel.ci]\ninstall = "{install}"\n')
        api.ci("github", source=project, write=True)
        rules = api.ci_check(CiRequest("github", source=project)).findings
        return [(each.rule, each.severity) for each in rules if each.rule.startswith("ci-install")]

    missing = [("ci-install-unavailable", "error")]
    assert found("cuwheel[build]==1.0.*") == []
    assert found("cuwheel[build]==2.0") == missing
    assert found("nobody-has-this") == missing
    assert found("ci/cuwheel-1.0-py3-none-any.whl[build]") == missing
    (project / "ci" / "cuwheel-1.0-py3-none-any.whl").touch()
    assert found("ci/cuwheel-1.0-py3-none-any.whl[build]") == []
    both = "ci/cuwheel_core-1.0-py3-none-any.whl ci/cuwheel-1.0-py3-none-any.whl[build]"
    assert found(both) == missing, "the core's is not there"
    (project / "ci" / "cuwheel_core-1.0-py3-none-any.whl").touch()
    assert found(both) == []
    written = (project / ".github" / "workflows" / "wheels.yml").read_text()
    assert f'CUWHEEL: "{both}"' in written
    assert "pip install $CUWHEEL\n" in written, "each is a word of its own"
    # Where nobody answers nobody can tell.
    assert found("https://127.0.0.1:9/cuwheel-1.0-py3-none-any.whl") == [("ci-install-unavailable", "warning")]


def test_cibuildwheel_reads_its_tables(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    (tmp_path / "kernel.cu").touch()
    project.write_text(
        '[project]\nname = "foo"\nversion = "1"\n[build-system]\nrequires = []\n'
        '[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0", "12.8"]\npython = ["3.11", "3.12"]\n'
    )
    expected = ["cp311-manylinux_x86_64", "cp312-manylinux_x86_64"]
    answer = api.ci("cibuildwheel", source=tmp_path, write=True)
    assert answer.written
    assert [each.rule for each in answer.findings] == ["ci-one-cuda"]
    assert (done := _identifiers(tmp_path)).stdout.split() == expected, done.stderr
    other = api.ci("cibuildwheel", source=tmp_path, cuda="12.8", write=True)
    assert (other.file, other.findings) == ("ci/cibuildwheel-cu128.toml", ())
    assert "toolchain install 12.8" in (tmp_path / other.file).read_text()
    assert (done := _identifiers(tmp_path, "--config-file", other.file)).stdout.split() == expected, done.stderr
    project.write_text(project.read_text().replace("repair-wheel-command", "repair-wheel-commands"))
    assert _identifiers(tmp_path).returncode != 0
