"""The core's wheel alone, in environments that have nothing else: it reads, answers, and brings its three."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dist.conftest import LIBRARY, MINUTES, PYTHONS, ROOT, find_python

_OF_THE_ENVIRONMENT = {"pip", "setuptools"}  # what `python -m venv` puts there, setuptools before Python 3.12
_LISTED = "import importlib.metadata as m, json; print(json.dumps(sorted({d.name.lower() for d in m.distributions()})))"
_READS = """
import sys
import cuwheel_core as core

library = core.read(sys.argv[1])
assert {row.arch for row in library.device_code} == {"sm_80", "sm_90", "compute_90"}, library.device_code
h100 = core.device("h100", driver="580.65.06")
assert core.outcome(library, h100).outcome == "native"
v100 = core.outcome(library, core.device("v100", driver="580.65.06"))
assert (v100.outcome, v100.predicted_error.code) == ("fails", 209)
matrix = core.coverage(sys.argv[1], ["h100", "v100"])
assert matrix.kernels and not matrix.lacking("h100") and matrix.lacking("v100") == matrix.kernels
"""


@pytest.fixture(scope="module")
def core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core's wheel: of $CUWHEEL_DIST, else of this tree, which has no C in it that would need a compiler."""
    if os.environ.get("CUWHEEL_DIST"):
        (given,) = request.getfixturevalue("made").glob("cuwheel_core-*.whl")
        return Path(given)
    folder = tmp_path_factory.mktemp("core")
    words = ["uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT / "core")]
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(words, check=True, timeout=MINUTES, env=environ)
    (made,) = folder.glob("cuwheel_core-*.whl")
    return made


@pytest.fixture(scope="module", params=(*PYTHONS, "3.14"))
def python(request: pytest.FixtureRequest, core: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the core's wheel, installed by pip."""
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"Python {request.param} is not installed")
    folder = tmp_path_factory.mktemp(f"core-{request.param}") / "env"
    subprocess.run([found, "-m", "venv", folder], check=True, timeout=MINUTES)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", str(core)]
    subprocess.run([folder / "bin" / "python", *words], check=True, timeout=MINUTES)
    return folder / "bin" / "python"


def _run(python: Path, *words: str, cwd: Path, status: int = 0) -> str:
    """Apart from this checkout: -I keeps its folders and variables out."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(python), "-I", *words]
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=MINUTES)
    assert done.returncode == status, (done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def test_it_brings_its_three_and_nothing_else(python: Path, tmp_path: Path) -> None:
    listed = set(json.loads(_run(python, "-c", _LISTED, cwd=tmp_path)))
    assert listed - _OF_THE_ENVIRONMENT == {"cuwheel-core", "lz4", "msgspec", "zstandard"}


def test_it_reads_and_answers(python: Path, tmp_path: Path) -> None:
    _run(python, "-c", _READS, str(LIBRARY), cwd=tmp_path)
    words = ("-m", "cuwheel_core", str(LIBRARY), "--json", "--on")
    found = json.loads(_run(python, *words, "sm_90", cwd=tmp_path))
    assert found["libraries"][0]["outcomes"] == ["native"]
    _run(python, *words, "v100", cwd=tmp_path, status=1)
