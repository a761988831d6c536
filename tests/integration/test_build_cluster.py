"""`build --cluster`: the same wheels as here, by workers that build at one path at the same time."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

import cuwheel
from tests.integration import build_projects as projects
from tests.integration import build_world as world

pytest.importorskip("distributed")
NATIVE = "plan = { native = true }"


@pytest.mark.slow
def test_shares_of_a_cluster_are_the_wheel_of_one_machine(tmp_path: Path) -> None:
    here = world.World(folder=tmp_path).with_toolkits("13.0")
    source = projects.bare(tmp_path / "source", settings=NATIVE, in_cpp=True)
    words = ("--for", "8.9,9.0", "--cluster", "local:2")
    told = here.build(source, *words)
    assert told.status == 0, told.all
    (job,) = told.document["jobs"]
    assert {each["worker"] for each in told.document["workers"]} == {
        f"{platform.node()}-{number}" for number in range(2)
    }
    assert [each["rule"] for each in told.document["findings"]] == ["shares-chosen"]
    assert job["calls"]["total"] == 0  # of the one that put the shares together: it compiled nothing
    wheel = job["wheel"]["path"]
    (library,) = cuwheel.inspect(wheel).libraries
    assert [str(row.arch) for row in library.device_code] == ["sm_89", "sm_90"]
    resumed = here.build(source, *words)
    assert resumed.document["jobs"][0]["outcome"] == "resumed"
    assert resumed.document["workers"] == []
    alone = here.build(source, "--for", "8.9,9.0", "--shares", "yes", "-o", tmp_path / "alone")
    assert alone.status == 0, alone.all
    assert alone.document["jobs"][0]["wheel"]["sha256"] == job["wheel"]["sha256"]


@pytest.mark.slow
def test_a_build_that_fails_on_a_worker_is_explained_here(tmp_path: Path) -> None:
    here = world.World(folder=tmp_path).with_toolkits("13.0")
    source = projects.bare(tmp_path / "source", settings=NATIVE, in_cpp=True)
    (source / "kernel.cu").write_text("__global__ void broken() { nowhere(); }\n")
    for words in (("--for", "9.0"), ("--for", "8.9,9.0", "--shares", "yes")):
        told = here.build(source, *words, "--cluster", "local:1")
        assert told.status == 1, told.all
        (job,) = told.document["jobs"]
        assert job["outcome"] == "failed"
        assert 'identifier "nowhere" is undefined' in job["failure"]["output"]
        assert all(Path(job[each]).exists() for each in ("log", "record"))
    (source / "kernel.cu").write_text(world.KERNEL)
    assert here.build(source, "--for", "9.0", "--cluster", "local:1").status == 0
