"""pip or uv alone; and what is made once for a whole run, by the worker that needs it first: the others wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.network import venvs
from cuwheel.support import extras, system_calls

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def once_in_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """The folder of that name, filled by the function. It is for reading: other tests use it at the same time."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with (root / f"{name}.lock").open("w") as file:
            system_calls.wait_for_lock(file.fileno())
            if not done.exists():  # in its place from the start: environments know where they lie
                folder.mkdir(exist_ok=True)
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(params=["pip", "uv"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The only one that is there."""
    name: str = request.param
    if name == "uv":
        if venvs.uv() is None:
            pytest.skip("uv is not installed here")
        monkeypatch.setattr(venvs, "pip", lambda: None)
    else:
        if venvs.pip() is None:
            pytest.skip("pip is not installed here")
        monkeypatch.setattr(venvs, "uv", lambda: None)
    return name


@pytest.fixture(scope="session")
def own_wheel(once_in_run: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """cuwheel's own, of this tree."""

    def make(folder: Path) -> None:
        words = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
        words += ["--installer", "uv"] if extras.program("uv") else []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr

    (wheel,) = once_in_run("own-wheel", make).glob("*.whl")
    return wheel
