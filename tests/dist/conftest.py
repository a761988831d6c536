"""The wheel that `./run dist` makes, and environments that have it and nothing else: `./run test-dist`."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "tests" / "fixtures" / "bin" / "plain-130.so"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MINUTES = 600.0
# What a plain machine has; no compiler, no uv, no git.
_PROGRAMS = ("sh", "cat", "true", "env", "uname", "ldd", "ldconfig", "sleep", "rm")


@functools.cache
def find_python(version: str) -> str | None:
    """One that runs: pyenv's shims exist for versions that do not."""
    homes = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    for each in (f"python{version}", *map(str, homes)):
        asked = [each, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=MINUTES)
        except OSError:
            continue
        if done.stdout.strip() == version:
            return each
    return None


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel: the one that $CUWHEEL_DIST names, else of this tree."""
    if given := os.environ.get("CUWHEEL_DIST"):
        return Path(given).absolute()
    folder = tmp_path_factory.mktemp("dist")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = [sys.executable, str(ROOT / "release" / "dist.py"), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MINUTES, env=environ)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def wheel(made: Path) -> Path:
    (found,) = made.glob("cuwheel-*.whl")
    return found


@pytest.fixture(scope="session")
def core(made: Path) -> Path:
    """The wheel of cuwheel-core."""
    (found,) = made.glob("cuwheel_core-*.whl")
    return found


@pytest.fixture(scope="session")
def laboratory(made: Path) -> Path:
    """The wheel of cuwheel-lab."""
    (found,) = made.glob("cuwheel_lab-*.whl")
    return found


@dataclass(frozen=True)
class Bare:
    """An environment made by `python -m venv`, with the wheel by pip, and a PATH without compilers."""

    folder: Path
    path: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        home = cwd / "home"
        home.mkdir(exist_ok=True)
        kept = {
            key: os.environ[key] for key in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE") if key in os.environ
        }
        environ = {**kept, "PATH": self.path, "HOME": str(home), "LANG": "C.UTF-8", "COLUMNS": "80", **more}
        command = [str(self.folder / "bin" / "cuwheel"), *map(str, words)]
        return subprocess.run(
            command, env=environ, cwd=cwd, capture_output=True, text=True, check=False, timeout=MINUTES
        )

    def answers(self, *words: str | Path, cwd: Path, status: int = 0, **more: str) -> str:
        done = self.run(*words, cwd=cwd, **more)
        assert done.returncode == status, (words, done.returncode, done.stdout[-2000:], done.stderr[-4000:])
        assert "this is a bug" not in done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="session", params=PYTHONS)
def bare(request: pytest.FixtureRequest, core: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"Python {request.param} is not installed")
    folder = tmp_path_factory.mktemp(f"bare-{request.param}")
    subprocess.run([python, "-m", "venv", folder / "env"], check=True, timeout=MINUTES)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", str(core), str(wheel)]
    subprocess.run([folder / "env" / "bin" / "python", *words], check=True, timeout=MINUTES)
    tools = folder / "tools"
    tools.mkdir()
    for name in _PROGRAMS:
        if found := shutil.which(name, path=os.defpath + ":/usr/sbin:/sbin"):
            (tools / name).symlink_to(found)
    return Bare(folder=folder / "env", path=f"{folder / 'env' / 'bin'}:{tools}")
