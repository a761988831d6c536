"""What a plan says, compiled: real nvcc and CMake make exactly the list."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from tests.fixtures import toolkits
from tests.fixtures.cache import UnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.verdicts.planning.plan import Job

KERNEL = "__global__ void nothing() {}\n"
LISTS = """\
cmake_minimum_required(VERSION 3.22)
project(one LANGUAGES CUDA)
add_library(one SHARED one.cu)
"""


@pytest.fixture(params=[pytest.param("12.4", marks=pytest.mark.slow), "13.0"])
def cuda(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nvcc(cuda: str) -> Path:
    try:
        return toolkits.nvcc(cuda) / "bin" / "nvcc"
    except UnavailableError as error:
        pytest.skip(str(error))


def planned(job: Job) -> set[str]:
    return {*job.archs, *job.ptx}


def compiled(path: Path) -> set[str]:
    return {row.arch for library in api.inspect(path).libraries for row in library.device_code}


@pytest.mark.parametrize(
    ("wish", "gpus"),
    [
        ("future", ["all"]),
        ("specific", ["a100", "h100", "12.0"]),
        ("family", ["a100", "h100", "12.0"]),
        pytest.param("specific", ["all"], marks=pytest.mark.slow),
        pytest.param("family", ["all"], marks=pytest.mark.slow),
    ],
)
def test_nvcc_makes_what_was_planned(nvcc: Path, cuda: str, wish: str, gpus: list[str], tmp_path: Path) -> None:
    if cuda == "12.4" and gpus != ["all"]:
        gpus = gpus[:-1]  # which it does not know
    (job,) = api.plan(*gpus, cuda=[cuda], **{wish: True}).jobs  # type: ignore[arg-type]  # one of the options
    source = tmp_path / "one.cu"
    source.write_text(KERNEL)
    flags = (job.flags.nvcc or "").split()
    subprocess.run([nvcc, "-fatbin", *flags, "-o", tmp_path / "one.fatbin", source], check=True, capture_output=True)
    assert compiled(tmp_path / "one.fatbin") == planned(job)


def test_cmake_makes_what_was_planned(tmp_path: Path) -> None:
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("there is no cmake here")
    try:
        top = toolkits.nvcc("13.0")
    except UnavailableError as error:
        pytest.skip(str(error))
    (job,) = api.plan("h100", "l40", cuda=["13.0"], future=True).jobs
    (tmp_path / "one.cu").write_text(KERNEL)
    (tmp_path / "CMakeLists.txt").write_text(LISTS)
    build = tmp_path / "build"
    words = ["-DCMAKE_CUDA_ARCHITECTURES=" + (job.flags.cmake or ""), f"-DCMAKE_CUDA_COMPILER={top}/bin/nvcc"]
    subprocess.run([cmake, "-S", tmp_path, "-B", build, *words], check=True, capture_output=True)
    subprocess.run([cmake, "--build", build], check=True, capture_output=True)
    assert compiled(build / "libone.so") == planned(job)


@pytest.mark.parametrize("cudart", ["shared", pytest.param("static", marks=pytest.mark.slow)])
def test_a_relocatable_build_of_the_planned_list_has_the_size_that_is_predicted_from_it(
    nvcc: Path, cuda: str, cudart: str, tmp_path: Path
) -> None:
    """A device link leaves the PTX in its objects alone; counted as something else, it was predicted a second time."""
    if cuda == "12.4":
        pytest.skip("libcudadevrt of CUDA 12.4 is in no package that is unpacked for the tests")
    (job,) = api.plan("a100", "h100", cuda=[cuda], future=True).jobs
    assert job.ptx
    (tmp_path / "one.cu").write_text(
        "__device__ float half(float);\n__global__ void one(float *a) { a[threadIdx.x] = half(a[threadIdx.x]); }\n"
    )
    (tmp_path / "two.cu").write_text("__device__ float half(float x) { return sinf(x) / 2; }\n")
    library = tmp_path / "lib.so"
    words: list[str | Path] = [
        nvcc,
        "-rdc=true",
        "-shared",
        "-Xcompiler=-fPIC",
        f"-cudart={cudart}",
        *(job.flags.nvcc or "").split(),
    ]
    subprocess.run([*words, "-o", library, "one.cu", "two.cu"], check=True, capture_output=True, cwd=tmp_path)
    (sized,) = api.plan_sizes(api.plan("a100", "h100", cuda=[cuda], future=True), library).jobs
    assert sized.size is not None
    assert sized.size.bytes == sized.size.like_bytes == library.stat().st_size
    assert "not in it" not in sized.size.method
