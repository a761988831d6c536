from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import ConfigurationError
from cuwheel.facts import more_libraries
from cuwheel_core.errors import UnknownNameError, UnreadableError
from cuwheel_core.facts import cuda_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "component", "majors"),
    [
        ("libcusolver.so.11", "cusolver", (11, 12)),
        ("libcusolver.so.12", "cusolver", (13,)),
        ("libcublasLt.so.12", "cublasLt", (12,)),
        ("/usr/local/cuda/lib64/libcudart.so.12", "cudart", (12,)),
        ("libcudart.so.12.4.127", "cudart", (12,)),
        ("libcudart.so.11.0", "cudart", (11,)),
        ("libnvrtc-builtins.so.12.4", "nvrtc-builtins", (12,)),
        ("libcupti.so.11.7", "cupti", (11,)),
        ("cublas64_12.dll", "cublas", (12,)),
        (r"C:\CUDA\bin\CUDART64_12.DLL", "cudart", (12,)),
    ],
)
def test_a_file_name_tells_component_and_majors(name: str, component: str, majors: tuple[int, ...]) -> None:
    library = cuda_libraries.find_library(name)
    assert (library.component, library.majors) == (component, majors)
    assert not library.from_driver


@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvidia-ml.so.1", "nvcuda.dll"])
def test_the_driver_brings_its_own(name: str) -> None:
    library = cuda_libraries.find_library(name)
    assert library.from_driver
    assert library.majors == ()


@pytest.mark.parametrize("name", ["libcurl.so.4", "libcudart.so", "libcuda.so.2", "libcublas.so.99", "", "x.dll"])
def test_others_are_unknown(name: str) -> None:
    assert not cuda_libraries.is_cuda_library(name)
    with pytest.raises(UnknownNameError):
        cuda_libraries.find_library(name)


def test_names_of_strangers_are_not_compared_with_all_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel may have twenty thousand files, and each is asked for."""
    cuda_libraries._components()
    monkeypatch.setattr(cuda_libraries, "all_libraries", lambda: pytest.fail("looked through the table"))
    assert cuda_libraries.known_library("kernels/49/19999.cubin") is None
    assert not cuda_libraries.is_cuda_library("kernels/libown.so.1")


def test_names_of_strangers_do_not_even_have_the_table_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_libraries, "tables", lambda: pytest.fail("read the table"))
    for cached in (cuda_libraries._packages_by_name, cuda_libraries._components, cuda_libraries._driver_components):
        cached.cache_clear()
    assert cuda_libraries.known_library("plain-130.so") is None
    assert not cuda_libraries.is_driver_library("/usr/lib/libmykernels-1a2b3c4d.so.7")


def test_every_name_of_the_table_is_known() -> None:
    for each in cuda_libraries.all_libraries():
        found = cuda_libraries.known_library(each.pattern.replace("*", "1"))
        assert found, each.pattern
        assert found.component == each.component
        if each.from_driver:
            assert cuda_libraries.is_driver_library(each.pattern), each.pattern


def test_an_unknown_library_suggests_near_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        cuda_libraries.find_library("libcublas.so.99")
    assert any("cublas" in each for each in caught.value.suggestions)


@pytest.mark.parametrize(
    ("name", "itself"),
    [
        ("libcublasLt.so.13", True),
        ("libcudnn_ops.so.9", True),
        ("libnccl.so.2", True),
        ("libcusparseLt.so.0", True),
        ("libcublas.so.13", True),
        ("libcufft.so.12", True),
        ("libcurand.so.10", False),
        ("libcudart.so.13", False),
    ],
)
def test_which_choose_their_kernels_themselves(name: str, itself: bool) -> None:  # noqa: FBT001 - a column above
    assert cuda_libraries.find_library(name).chooses_kernels_itself is itself


def test_every_library_is_found_by_its_own_name() -> None:
    for library in cuda_libraries.all_libraries():
        assert cuda_libraries.find_library(library.pattern.replace("*", "4")).component == library.component


_ROW = """\
[[package]]
name = "nvidia-cublas"
cuda = 14
folder = "nvidia/cu14/lib"
sonames = ["libcublas.so.14"]
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The tables are read once a process: here again before and after."""
    caches = [each for each in vars(cuda_libraries).values() if hasattr(each, "cache_clear")]
    for each in caches:
        each.cache_clear()
    yield monkeypatch
    for each in caches:
        each.cache_clear()


def test_a_new_cuda_needs_a_row_and_not_a_release(tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.toml"
    file.write_text(_ROW)
    fresh.setenv(more_libraries.VARIABLE, str(file))
    found = cuda_libraries.find_library("libcublas.so.14")
    assert found.majors == (14,)
    assert found.packages[0].folder == "nvidia/cu14/lib"
    assert cuda_libraries.find_library("libcublas.so.13").majors == (13,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[package]]\nname = 3\n", "expected `str`, got `int`"),
        (_ROW.replace("folder", "fodler"), "did you mean 'folder'"),
        (_ROW.replace("cuda = 14", ""), "it must give its CUDA and its folder"),
        ("[package", "Expected ']'"),
        ("rows = 1\n", "unknown key 'rows'"),
    ],
)
def test_rows_that_are_wrong(text: str, problem: str, tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.toml"
    file.write_text(text)
    fresh.setenv(more_libraries.VARIABLE, str(file))
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        cuda_libraries.all_libraries()


def test_rows_that_are_not_there(tmp_path: Path, fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv(more_libraries.VARIABLE, str(tmp_path / "none.toml"))
    with pytest.raises(UnreadableError, match=r"none\.toml"):
        cuda_libraries.all_libraries()


def test_a_library_that_moved_has_a_row_for_each_place() -> None:
    rows = [each for each in cuda_libraries.find_library("libcusparseLt.so.0").packages if each.cuda == 13]
    folders = {release: [each.folder for each in rows if each.covers(release)] for release in ("0.8.1.post1", "0.9.0")}
    assert folders == {"0.8.1.post1": ["nvidia/cusparselt/lib"], "0.9.0": ["nvidia/cu13/lib"]}


def test_every_release_of_a_package_has_one_row() -> None:
    for row in cuda_libraries.library_rows():
        same = [each for each in cuda_libraries.library_rows() if each.name == row.name and row.measured_release]
        assert not same or [each for each in same if each.covers(row.measured_release or "")] == [row]


@pytest.mark.parametrize(
    ("soname", "major", "package"),
    [
        ("libcufftw.so.12", 13, "nvidia-cufft"),  # cuFFTMp's package has it too
        ("libcusolver.so.11", 11, "nvidia-cusolver-cu11"),
        ("libcusolver.so.11", None, "nvidia-cusolver-cu12"),
        ("libcusolver.so.11", 13, "nvidia-cusolver-cu12"),  # no package of that CUDA has it
        ("libnvcomp.so.5", 12, "nvidia-libnvcomp-cu12"),
    ],
)
def test_the_usual_package_of_a_library(soname: str, major: int | None, package: str) -> None:
    found = cuda_libraries.find_library(soname).package_for(major)
    assert found
    assert found.name == package


def test_what_others_bring_too_is_not_cudas() -> None:
    assert any("libOpenCL.so.1" in row.sonames for row in cuda_libraries.library_rows())
    assert not cuda_libraries.is_cuda_library("libOpenCL.so.1")


def test_a_name_of_a_hundred_thousand_versions_is_no_library_s() -> None:
    """Each part that is left off was looked for in the whole table."""
    began = time.process_time()
    assert cuda_libraries.known_library("libcudart.so" + ".1" * 100_000) is None
    assert cuda_libraries.known_library("libcudart.so.13.0.88.1.2") is not None
    assert time.process_time() - began < 2
