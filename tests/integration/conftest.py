"""pip or uv alone; what is made once for a whole run, by the worker that needs it first: the others wait; and the
skip, with its reason, of what failed because this machine reaches no package index.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.network import venvs
from cuwheel.support import process, system_calls
from tests.fixtures import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).parents[2]
_NOT_REACHED = re.compile(
    r"dns error|name resolution|Name or service not known|Network is unreachable|NameResolutionError"
    r"|index not reachable|error sending request|NotReachableError|Failed to fetch"
    r"|No matching distribution found|Could not find a version"
)


@functools.cache
def _no_index() -> bool:
    """Asked only after a failure that says so."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--target", folder, "setuptools"]
        if uv := venvs.uv():
            words = [uv, "pip", "install", "--quiet", "--dry-run", "--no-cache", "--python", sys.executable, *words]
        else:
            words = [*cache.pip(), "install", "--quiet", "--retries", "0", "--no-deps", *words]
        return subprocess.run(words, capture_output=True, check=False, timeout=600).returncode != 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Dozens of tests build packages that need setuptools or another backend: without an index none can."""
    report = yield
    if report.failed:
        told = "".join([report.longreprtext, *(text for _, text in report.sections)])
        if _NOT_REACHED.search(told) and _no_index():
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, "Skipped: no package index can be reached here")
    return report


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
def own_wheels(once_in_run: Callable[[str, Callable[[Path], None]], Path]) -> tuple[Path, Path]:
    """The wheels of the core and of cuwheel, of this tree: what is installed to have cuwheel."""

    def make(folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for project in (ROOT / "core", ROOT):
            words = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(project)]
            words += ["--installer", "uv"] if process.find_program("uv") else []
            done = subprocess.run(
                words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=600
            )
            assert done.returncode == 0, done.stdout + done.stderr

    made = once_in_run("own-wheels", make)
    (core,), (tool,) = made.glob("cuwheel_core-*.whl"), made.glob("cuwheel-*.whl")
    return core, tool
