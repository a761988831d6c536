"""The examples, built for real on a machine whose own toolkit is out of sight, and inspected."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.network import venvs
from cuwheel.support import process
from tests.fixtures import cache, cargo
from tests.integration import build_world as world

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library
    from tests.integration.build_world import World

TAGS = {
    "scikit_kernel": "py3-none",
    "setuptools_nvcc": "cp310-abi3",
    "cargo_kernel": "py3-none",
}
FILES = {"scikit_kernel": 2, "setuptools_nvcc": 1, "cargo_kernel": 1}  # with kernels
# What each says where there is no driver: the library was found, loaded and called.
CALLS = {
    "scikit_kernel": "import scikit_kernel as m; print(m.library().scikit_kernel_version()); m.squares(3)",
    "setuptools_nvcc": "import setuptools_nvcc as m; print(1); m.dot([1], [2])",
    "cargo_kernel": "import cargo_kernel as m; print(m.library().cargo_kernel_version()); m.cubes(3)",
}


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path)


def the_wheels(document: Any) -> list[Path]:
    """Of an answer in which every job gave one."""
    outcomes = {job["id"]: (job["outcome"], job["failure"], job["findings"]) for job in document["jobs"]}
    assert all(outcome in ("built", "resumed") for outcome, _, _ in outcomes.values()), outcomes
    return [Path(job["wheel"]["path"]) for job in document["jobs"]]


def assert_loads(wheel: Path, code: str, folder: Path) -> None:
    """Installed apart, it loads, and says why it cannot run: there is no driver, or no GPU."""
    python = venvs.make(folder / "installed", venvs.find_python())
    venvs.install(python, [wheel], dependencies=False, index=False)
    done = process.run([python, "-c", code], timeout=world.MINUTES, check=False, cwd=folder)
    assert done.stdout.startswith("1"), done.stderr
    assert done.status == 0 or "cudaError" in done.stderr


def assert_nothing_of_this_machine(document: Any) -> None:
    """No variable of a build names a toolkit that is not from the store, and neither does a compiler call."""
    for job in document["jobs"]:
        for setting in job["settings"]:
            assert "/usr/local/cuda" not in setting["value"], setting
        assert Path(job["tools"]["root"]).is_relative_to(cache.folder())
        told = Path(job["log"]).read_text(errors="replace")
        assert "/usr/local/cuda" not in told
        assert "/usr/local/bin/nvcc" not in told


@pytest.mark.slow
def test_setuptools_nvcc_for_two_versions(here: World) -> None:
    """Two CUDA versions and two GPUs: one wheel each for all Pythons, named by their CUDA."""
    here.with_toolkits("13.0", "13.4")
    source = here.project("setuptools_nvcc")
    told = here.build(source, "--cuda", "13.0,13.4", before=world.confined())
    assert told.status == 0, told.all
    made = the_wheels(told.document)
    assert [wheel.name.split("-")[:2] for wheel in made] == [
        ["setuptools_nvcc", "1.0+cu130"],
        ["setuptools_nvcc", "1.0+cu134"],
    ]
    for wheel, cuda in zip(made, ("13.0", "13.4"), strict=True):
        assert f"-{TAGS['setuptools_nvcc']}-" in wheel.name
        (library,) = api.inspect(wheel).libraries
        assert {row.arch for row in library.device_code} == {"sm_89", "sm_90"}
        assert {row.count for row in library.device_code} == {FILES["setuptools_nvcc"]}
        assert library.toolkits == (cuda,)
    assert_nothing_of_this_machine(told.document)
    assert_loads(made[0], CALLS["setuptools_nvcc"], here.folder)
    assert (here.out / "build.json").is_file()
    sums = (here.out / "SHA256SUMS").read_text()
    assert all(wheel.name in sums for wheel in made)
    assert sorted(source.rglob("*")) == sorted(source / each for each in _files("setuptools_nvcc")), "built in a copy"


def _files(example: str) -> list[Path]:
    top = world.EXAMPLES / example
    skipped = ("target", "build", "__pycache__")
    paths = (path.relative_to(top) for path in top.rglob("*"))
    return [path for path in paths if not any(part in skipped for part in path.parts)]


@pytest.mark.slow
@pytest.mark.parametrize("example", ["scikit_kernel", "cargo_kernel"])
def test_for_one_version(here: World, example: str) -> None:
    here.with_toolkits("13.0")
    told = here.build(here.project(example))
    assert told.status == 0, told.all
    (wheel,) = the_wheels(told.document)
    assert f"-{TAGS[example]}-" in wheel.name
    (library,) = api.inspect(wheel).libraries
    assert {row.arch for row in library.device_code} == {"sm_89", "sm_90"}
    assert {row.count for row in library.device_code} == {FILES[example]}
    assert_nothing_of_this_machine(told.document)
    assert_loads(wheel, CALLS[example], here.folder)


@cargo.needed
def test_what_a_build_script_hides(here: World) -> None:
    """cargo shows that nvcc failed and not why; the record has the words that were thrown away."""
    here.with_toolkits("13.0")
    source = here.project("cargo_kernel")
    kernel = source / "crate" / "kernels" / "cubes.cu"
    kernel.write_text(kernel.read_text().replace("cudaFree(memory);", "cudaFree(memry);"))
    told = here.build(source)
    assert told.status == 1, told.all
    (job,) = told.document["jobs"]
    assert job["outcome"] == "failed"
    assert 'identifier "memry" is undefined' not in Path(job["log"]).read_text()
    assert 'identifier "memry" is undefined' in job["failure"]["output"]
    assert "kernels/cubes.cu" in job["failure"]["command"]
    assert world.wheels(here.out) == []


@pytest.mark.slow
@cargo.needed
def test_what_a_build_script_hides_by_hand(here: World) -> None:
    """The same without `build`: as somebody would who has only the crate, and an architecture that is too old."""
    crate = here.project("cargo_kernel") / "crate"
    root = world.toolkit("13.0") / "root"
    wrong = {"CUDA_HOME": str(root), "CUDA_COMPUTE_CAP": "37"}
    words = ("record", "--output", here.folder / "record", "--", "cargo", "build", "--offline", "--manifest-path")
    told = here.cuwheel(*words, crate / "Cargo.toml", env=wrong)
    assert told.status == 101, "cargo's own"
    assert "nvcc failed" in told.all
    assert "nvcc fatal   : Unsupported gpu architecture" in told.all
    assert "gpu-architecture-removed" in here.cuwheel("explain", here.folder / "record").stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(TAGS))
def test_for_a_newer_gpu_and_a_later_cuda(here: World, example: str) -> None:
    """Another fleet than the pyproject says, by the command line; PTX for what comes after."""
    here.with_toolkits("13.4")
    told = here.build(here.project(example), "--for", "b200,rtx 5090", "--cuda", "13.4", before=world.confined())
    assert told.status == 0, told.all
    (wheel,) = the_wheels(told.document)
    assert world.architectures(wheel) == {"sm_100", "sm_120"}
    assert wheel.name.split("-")[1] == "1.0+cu134"


@pytest.mark.slow
@pytest.mark.download
@pytest.mark.parametrize("example", sorted(TAGS))
def test_with_debians_older_toolkit(here: World, example: str) -> None:
    here.with_toolkits("12.4", provider="debian")
    told = here.build(here.project(example), "--cuda", "12.4", provider="debian", before=world.confined())
    assert told.status == 0, told.all
    (wheel,) = the_wheels(told.document)
    assert world.architectures(wheel) == {"sm_89", "sm_90"}
    assert api.inspect(wheel).libraries[0].toolkits == ("12.4",)
    assert_loads(wheel, CALLS[example], here.folder)


def _torch_without_cuda() -> Path:
    """The folder of a CPU build, where pip's configuration knows of one."""
    try:
        folder = cache.made("torch-2.13.0", lambda target: cache.pip_download(target, "torch==2.13.0"))
    except cache.UnavailableError as error:
        pytest.skip(str(error))
    if not list(folder.glob("torch-*+cpu-*.whl")):
        pytest.skip("the torch that can be had here is no CPU build")
    return folder


def built_extension(here: World, source: Path, **options: Any) -> Library:
    here.with_toolkits("13.0")
    told = here.build(source, timeout=30 * world.MINUTES, **options)
    if told.status == 1 and "could not install" in told.stdout:
        pytest.skip(f"torch cannot be had here: {told.document['jobs'][0]['failure']['what'].splitlines()[-1]}")
    assert told.status == 0, told.all
    (wheel,) = the_wheels(told.document)
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/cuwheel.json"))
        assert json.loads(archive.read(name))["archs"] == ["sm_89", "sm_90"]
    (library,) = api.inspect(wheel).libraries
    assert {row.arch for row in library.device_code} == {"sm_89", "sm_90"}
    return library


@pytest.mark.slow
@pytest.mark.download
def test_torch_extension(here: World) -> None:
    """Against the newest torch of the index, whose CUDA libraries it needs and does not carry."""
    library = built_extension(here, here.project("torch_extension"))
    assert {"libc10.so", "libtorch_cpu.so"} <= set(library.needed)
    assert library.cudart
    assert library.cudart.linkage == "dynamic"


@pytest.mark.slow
@pytest.mark.download
def test_torch_extension_against_a_torch_without_cuda(here: World) -> None:
    """Its headers do: the runtime is linked in, and torch's CUDA libraries are not asked for."""
    folder = _torch_without_cuda()
    source = here.project("torch_extension")
    config = source / "pyproject.toml"
    config.write_text(config.read_text().replace('"torch>=2.4", "ninja"]', '"torch==2.13.0+cpu", "ninja"]'))
    library = built_extension(here, source, env={"UV_FIND_LINKS": str(folder), "PIP_FIND_LINKS": str(folder)})
    assert library.cudart
    assert library.cudart.linkage == "static"
    assert not any("cuda" in name for name in library.needed), library.needed
