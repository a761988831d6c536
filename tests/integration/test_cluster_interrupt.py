"""Ctrl-C or the end of `build --cluster` ends what the workers compile; the next run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration import build_projects as projects
from tests.integration import build_world as world
from tests.integration.cluster_world import ROOT, World, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("distributed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[World]:
    made = World(folder=tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.slow
def test_an_interrupted_build_ends_its_compilers_and_is_resumed(cluster: World, tmp_path: Path) -> None:
    here = world.World(folder=tmp_path).with_toolkits("13.0")
    here.environ["CUWHEEL_CLUSTER"] = str(cluster.certificates)
    waits = f"from time import sleep; Path({str(tmp_path / 'begun')!r}).write_text(str(os.getpid()))\n"
    waits += f"    while not Path({str(tmp_path / 'go')!r}).exists(): sleep(0.05)"
    source = projects.bare(tmp_path / "source", settings="plan = { native = true }", before=waits, in_cpp=True)
    cluster.scheduler()
    cluster.worker("first", env={"CUWHEEL_CACHE": str(here.store), "PATH": world.bare()["PATH"]})
    words = ("build", source, "--for", "9.0", "--provider", "index", "--cluster", cluster.address, "-o", here.out)
    child = here.start(*words)
    try:
        wait_for((tmp_path / "begun").exists)
        backend = int((tmp_path / "begun").read_text())
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=600)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 130, said
    assert world.gone(backend)
    (tmp_path / "go").touch()
    again = here.cuwheel(*words)
    assert again.status == 0, again.all
    assert len(world.wheels(here.out)) == 1


@pytest.mark.slow
def test_tasks_of_a_local_run_that_was_killed_end_by_themselves(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from cuwheel.clusters import engine\n"
        "from cuwheel.network import cluster_access\n"
        "from tests.integration.cluster_world import task\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with engine.open_engine(cluster_access.parse_address('local:1'), folder) as made:\n"
        "    made.run([task('wait', 'wait', str(folder))])\n"
    )
    environ = {**os.environ, "CUWHEEL_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environ, start_new_session=True) as child:
        try:
            wait_for(lambda: list(tmp_path.glob("*.begun")))
            (note,) = tmp_path.glob("*.begun")
            ours = [int(note.name.split(".")[1]), int(note.read_text())]  # the task, and what it started
        finally:
            child.kill()
    assert all(world.gone(each) for each in ours)


@pytest.mark.slow
def test_tasks_of_a_run_that_was_killed_are_ended(cluster: World, tmp_path: Path) -> None:
    """On workers that stay: nobody could stop them, and nobody waits for what they make. Others are not disturbed."""
    cluster.scheduler()
    cluster.worker("first", cores=2)
    program = (
        "import pathlib, sys\n"
        "from tests.integration.cluster_world import World, task\n"
        "with World(folder=pathlib.Path(sys.argv[1]), address=sys.argv[2]).engine() as engine:\n"
        "    engine.run([task(sys.argv[3], 'wait', sys.argv[1])])\n"
    )
    started = []
    try:
        for name in ("killed", "kept"):
            words = [sys.executable, "-c", program, str(tmp_path), cluster.address, name]
            started.append(subprocess.Popen(words, env=cluster.environ(), cwd=ROOT, start_new_session=True))
        killed, kept = started
        wait_for(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
        pids = {each.name.split(".")[0]: int(each.name.split(".")[1]) for each in tmp_path.glob("*.begun")}
        (theirs,) = tmp_path.glob("killed.*.begun")
        compiler = int(theirs.read_text())
        killed.kill()
        assert world.gone(pids["killed"])
        assert world.gone(compiler)
        assert not world.gone(pids["kept"], 1)
        (tmp_path / "go").touch()
        assert kept.wait(600) == 0
    finally:
        for each in started:
            each.kill()
            each.wait(600)
