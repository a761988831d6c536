"""A list with one architecture more costs that architecture: shares of a build, kept and grafted together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.build_world import World

NATIVE = "plan = { native = true }"


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def built(here: World, source: Path, machines: str, *words: str) -> tuple[dict[str, Any], str]:
    """The job, and what it says of its shares."""
    told = here.build(source, "--shares", "yes", "--for", machines, *words)
    assert told.status == 0, told.all
    (job,) = told.document["jobs"]
    (said,) = [each["message"] for each in job["findings"] if each["rule"] == "built-by-shares"]
    return job, said


def archs(job: dict[str, Any]) -> list[str]:
    (library,) = cuwheel.inspect(job["wheel"]["path"]).libraries
    return [str(row.arch) for row in library.device_code]


def test_one_architecture_more_is_compiled_alone_and_one_less_not_at_all(here: World) -> None:
    source = projects.bare(here.folder / "source", settings=NATIVE, in_cpp=True)
    job, said = built(here, source, "8.9,9.0")
    assert said == "compiled as shares: sm_89, sm_90; from the cache: none"
    assert archs(job) == ["sm_89", "sm_90"]
    more, said = built(here, source, "8.0,8.9,9.0")
    assert said == "compiled as shares: sm_80; from the cache: sm_89, sm_90"
    assert archs(more) == ["sm_80", "sm_89", "sm_90"]
    assert cuwheel.verify(more["wheel"]["path"], static=True).succeeded
    less, said = built(here, source, "8.0,9.0")
    assert said == "compiled as shares: none; from the cache: sm_80, sm_90"
    assert archs(less) == ["sm_80", "sm_90"]
    (source / "kernel.cu").write_text((source / "kernel.cu").read_text().replace("*= 2", "*= 3"))
    _, said = built(here, source, "8.0,9.0")
    assert said == "compiled as shares: sm_80, sm_90; from the cache: none"


@pytest.mark.slow
def test_shares_are_used_where_the_cache_has_most_of_them(here: World) -> None:
    source = projects.bare(here.folder / "source", settings=NATIVE, in_cpp=True)
    built(here, source, "8.9,9.0")
    told = here.build(source, "--for", "8.0,8.9,9.0")
    assert told.status == 0, told.all
    (job,) = told.document["jobs"]
    said = {each["rule"]: each["message"] for each in job["findings"]}
    assert said["shares-chosen"] == "compiled by architecture: 2 of 3 architectures are in the cache"
    assert said["built-by-shares"] == "compiled as shares: sm_80; from the cache: sm_89, sm_90"
    whole = here.build(source, "--for", "8.0,8.9,9.0", "--shares", "no", "--rebuild")
    assert "built-by-shares" not in [each["rule"] for each in whole.document["jobs"][0]["findings"]]


@pytest.mark.slow
def test_shares_that_were_compiled_otherwise_are_compiled_again(here: World) -> None:
    """What a build system derives from its list reaches nvcc: such shares do not fit those of another list."""
    source = projects.bare(here.folder / "source", settings=NATIVE, in_cpp=True)
    backend = source / "own_backend.py"
    counted = 'shlex.split(os.environ["KERNEL_ARCHS"]), f\'-DARCHS={os.environ["KERNEL_ARCHS"].count("-gencode")}\''
    backend.write_text(backend.read_text().replace('*shlex.split(os.environ["KERNEL_ARCHS"])', f"*{counted}"))
    built(here, source, "9.0,8.9")
    job, said = built(here, source, "8.0,8.9,9.0")
    assert said == "compiled as shares: sm_80, sm_89, sm_90; from the cache: none"
    assert archs(job) == ["sm_80", "sm_89", "sm_90"]


@pytest.mark.slow
def test_shares_of_relocatable_code_fit_though_their_names_have_process_numbers(here: World) -> None:
    """A file that defines nothing for others: nvcc names its variables by the number of its process."""
    source = projects.bare(here.folder / "source", settings=NATIVE, in_cpp=True)
    backend = source / "own_backend.py"
    backend.write_text(backend.read_text().replace('"-Xcompiler", "-fPIC"', '"-rdc=true", "-Xcompiler", "-fPIC"'))
    kernel = source / "kernel.cu"
    table = "static __device__ float table[4] = {1, 2, 3, 4};\n"
    text = kernel.read_text().replace("*= 2", "*= table[threadIdx.x & 3]")
    kernel.write_text(table + text.replace('extern "C" int', "__attribute__((used)) static int"))
    job, said = built(here, source, "8.9,9.0")
    assert said == "compiled as shares: sm_89, sm_90; from the cache: none"
    assert {"sm_89", "sm_90"} <= set(archs(job))
