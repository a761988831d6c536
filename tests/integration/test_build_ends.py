"""However a build ends, what it started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration import build_world as world

if TYPE_CHECKING:
    from tests.integration.build_world import World

# As ninja does: the compiler in a group of its own, which no signal to the backend's reaches.
BACKEND = """\
import subprocess
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    Path({mark!r}).write_text(str(child.pid))
    child.wait()
"""


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def hanging(here: World) -> tuple[Path, Path]:
    source, mark = here.folder / "hangs", here.folder / "pid"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "hangs"\nbackend-path = ["."]\n'
        '[project]\nname = "hangs"\nversion = "1.0"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n'
    )
    (source / "hangs.py").write_text(BACKEND.format(mark=str(mark)))
    (source / "kernel.cu").write_text(world.KERNEL)
    return source, mark


def assert_gone(mark: Path) -> None:
    """Dead is enough: whether the machine's first process reaps the dead is its own affair."""
    assert not Path("/proc", mark.read_text(), "exe").exists()


def test_out_of_time(here: World) -> None:
    source, mark = hanging(here)
    told = here.build(source, "--set", "timeout=6")
    assert told.status == 1, told.all
    assert_gone(mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(here: World, number: signal.Signals) -> None:
    source, mark = hanging(here)
    words = [*world.CUWHEEL, "build", str(source), "--output", str(here.out), "--provider", "index"]
    environ = {**os.environ, "CUWHEEL_CACHE": str(here.store)}
    with subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 600
        while not mark.exists() or not mark.read_text():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(number)
        assert child.wait(600) == 130
        assert child.stderr
        assert child.stderr.read().endswith("interrupted\n")
    assert_gone(mark)
    assert world.wheels(here.out) == []
