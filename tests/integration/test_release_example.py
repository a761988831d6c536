"""The maintainer's script in `examples/`: a small project is built, held against size and GPUs, and published."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.support import process
from tests.integration import build_world as world
from tests.integration.build_world import World

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.support.process import Completed

pytestmark = pytest.mark.integration


@pytest.fixture
def here(tmp_path: Path) -> World:
    return World(folder=tmp_path).with_toolkits("13.0")


def release(here: World, source: Path, *words: str) -> Completed:
    script = world.EXAMPLES / "release.py"
    places = ("--dist", str(here.out), "--to", str(here.folder / "index"))
    return process.run(
        [sys.executable, str(script), str(source), "--for", "h100", "--cuda", "13.0", *places, *words],
        timeout=5 * world.MINUTES,
        check=False,
        env={**world.bare(), "CUWHEEL_CACHE": str(here.store)},
        cwd=here.folder,
    )


def test_what_is_good_is_published_and_what_is_too_big_is_not(here: World) -> None:
    """In this order: the second run takes the wheel of the first from the cache."""
    source = world.tiny(here.folder)
    done = release(here, source, "--most", "0.001")
    assert done.status == 1, done.stderr
    assert "MB, and 0.001 are allowed" in done.stdout
    assert not (here.folder / "index").exists()
    done = release(here, source)
    assert done.status == 0, done.stderr
    assert ": good\n" in done.stdout
    assert done.stdout.endswith("channels cu130\n")
    (wheel,) = cuwheel.publish_check(here.folder / "index").wheels
    assert wheel.outcome == "sound"
    assert world.architectures(here.folder / "index" / "files" / wheel.file) == {"sm_90"}


@pytest.mark.slow
def test_a_gpu_that_nothing_was_compiled_for_stops_it(here: World) -> None:
    source = world.tiny(
        here.folder,
        archs='"-gencode arch=compute_80,code=sm_80"',
        settings="gate = { enabled = false }",
    )
    done = release(here, source)
    assert done.status == 1, done.stderr
    assert "fails on h100; it has code for sm_80\n" in done.stdout
    assert not (here.folder / "index").exists()


def test_an_error_ends_it_with_its_own_exit_code(here: World) -> None:
    done = release(here, here.folder / "nowhere")
    assert done.status == cuwheel.UnreadableError.exit_code, done.stderr
    assert done.stderr.startswith("error: ")
