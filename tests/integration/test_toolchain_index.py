"""Toolkits from the real index, on a machine whose own nvcc is hidden: compiled with, configured with, inspected."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.errors import UnavailableError
from cuwheel.toolchains import archives, provide, toolchain
from tests.fixtures import cache
from tests.integration import toolchain_site as site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.report.toolchain import Toolchain

KERNEL = """\
#include <cuda.h>
#include <thrust/version.h>
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
extern "C" int run(float *x) { int n; cuDeviceGetCount(&n); twice<<<1, 1>>>(x); return n; }
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.22)
project(demo LANGUAGES CXX CUDA)
find_package(CUDAToolkit REQUIRED)
add_library(demo SHARED demo.cu)
set_target_properties(demo PROPERTIES CUDA_ARCHITECTURES "80-real;90")
target_link_libraries(demo PRIVATE CUDA::cudart CUDA::cuda_driver)
message(STATUS "toolkit is ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
"""


def installed(version: str, **options: Any) -> Toolchain:
    """In the cache that tests share: downloaded once for all of them."""
    try:
        return api.toolchain(version, providers=["index"], cache=cache.folder() / "store", **options)
    except UnavailableError as error:
        pytest.skip(f"the index cannot be asked here: {error.message.splitlines()[-1]}")


def hidden(tmp_path: Path) -> dict[str, str]:
    """An environment with compilers and CMake on PATH, and no nvcc."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for path in Path(folder).iterdir():
            if "nvcc" not in path.name and path.exists() and not (programs / path.name).exists():
                (programs / path.name).symlink_to(path)
    environ = {"PATH": str(programs), "HOME": str(tmp_path)}
    assert shutil.which("nvcc", path=environ["PATH"]) is None
    return environ


@pytest.mark.slow  # for one toolkit it is tried below
@pytest.mark.parametrize("version", ["13.0", "13.4"])
def test_it_compiles_for_everything_it_claims(version: str) -> None:
    installed(version)
    answer = api.toolchain_verify(version, providers=["index"], cache=cache.folder() / "store")
    assert answer.verification
    assert answer.verification.succeeded, answer.verification.checks
    assert answer.verification.missing == ()
    assert {"sm_90a", "sm_100f", "sm_75"} <= set(answer.verification.architectures)


@pytest.mark.parametrize("version", [pytest.param("13.0", marks=pytest.mark.slow), "13.4"])  # CMake takes 13.0 below
def test_plain_nvcc_where_no_other_is(version: str, tmp_path: Path) -> None:
    """Through a shell that evaluates the lines, as a person does."""
    installed(version)
    answer = api.toolchain_env(version, providers=["index"], cache=cache.folder() / "store")
    (tmp_path / "k.cu").write_text(KERNEL)
    script = "\n".join([*answer.lines, "nvcc -arch=sm_90 -shared -Xcompiler -fPIC k.cu -o libk.so -lcuda"])
    subprocess.run(["sh", "-euc", script], env=hidden(tmp_path), cwd=tmp_path, check=True, timeout=600)
    (library,) = api.inspect(tmp_path / "libk.so").libraries
    assert {row.arch for row in library.device_code} == {"sm_90", "compute_90"}
    assert "libcuda.so.1" in library.needed


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed here")
def test_cmake_finds_it(tmp_path: Path) -> None:
    made = installed("13.0")
    root = made.toolkits[0].root
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(CMAKE)
    (source / "demo.cu").write_text(KERNEL)
    environ = toolchain.apply_settings(made.settings, hidden(tmp_path))
    told = subprocess.run(
        ["cmake", "-S", source, "-B", tmp_path / "build"],
        env=environ, check=True, timeout=600, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert f"The CUDA compiler identification is NVIDIA {made.toolkits[0].version}" in told
    assert f"in {root}" in told
    subprocess.run(["cmake", "--build", tmp_path / "build"], env=environ, check=True, timeout=600, capture_output=True)
    (library,) = api.inspect(tmp_path / "build" / "libdemo.so").libraries
    assert {row.arch for row in library.device_code} == {"sm_80", "sm_90", "compute_90"}
    assert {"libcuda.so.1", "libcudart.so.13"} <= set(library.needed)


def test_the_second_time_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = installed("13.0")
    monkeypatch.setenv("PATH", "/usr/bin")  # no uv; and pip, if any, would have to be started
    monkeypatch.setattr(archives, "resolve_wheels", None)
    assert installed("13.0", offline=True).toolkits == made.toolkits


@pytest.mark.slow
def test_a_real_toolkit_from_archives(tmp_path: Path) -> None:
    """The index's toolkit, taken apart into NVIDIA's archives, served, and put together again: it still compiles."""
    (toolkit,) = installed("13.0").toolkits
    parts = site.real_parts(Path(toolkit.root))
    mirror = cache.made(f"redist-{toolkit.identity[:12]}", lambda folder: site.write_site(folder, "13.0.2", parts))
    with site.serving(mirror, site.Behaviour()) as url:
        api.toolchain("13.0", providers=["redist"], redist_url=url, cache=tmp_path / "store")
    answer = api.toolchain_verify("13.0", cache=tmp_path / "store")
    assert answer.succeeded, answer.verification


def _linked(source: str, target: str) -> str:
    """Instead of a copy of hundreds of megabytes, where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        return str(shutil.copy2(source, target))
    return target


def test_a_system_toolkit_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And given a libcuda to link with, where it has none. Three architectures here; with `--all`, above, every one."""

    def ask_for_three(bench: provide._Bench) -> Iterator[str]:
        yield from ask(bench)
        bench.claimed = tuple(each for each in bench.claimed if each in some)

    some = {"sm_90a", "sm_100f", "sm_75"}
    (name, ask), *checks = provide.CHECKS
    monkeypatch.setattr(provide, "CHECKS", ((name, ask_for_three), *checks))
    root = tmp_path / "opt" / "cuda"
    shutil.copytree(installed("13.0").toolkits[0].root, root, symlinks=True, copy_function=_linked)
    shutil.rmtree(root / "lib" / "stubs")
    monkeypatch.setenv("CUDA_HOME", str(root))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    lock = tmp_path / "cuwheel.lock"
    answer = api.toolchain("13.0", providers=["system"], cache=tmp_path / "store", lock=lock)
    assert api.toolchain("13.0", locked=lock, cache=tmp_path / "store").toolkits == answer.toolkits
    assert (answer.toolkits[0].provider, answer.toolkits[0].root) == ("system", str(root))
    verification = api.toolchain_verify("13.0", cache=tmp_path / "store").verification
    assert verification
    assert verification.succeeded, verification.checks
    assert verification.missing == ()
    assert set(verification.architectures) == some
    library_path = next(each for each in answer.settings if each.name == "LIBRARY_PATH")
    assert Path(library_path.value).is_relative_to(tmp_path / "store")


@pytest.mark.download
def test_libraries_beside_the_toolkit() -> None:
    installed("13.0", components=["cublas", "cusolver", "nccl"])
    answer = api.toolchain_verify("13.0", components=["cublas", "cusolver", "nccl"], cache=cache.folder() / "store")
    assert answer.succeeded, answer.verification
    assert answer.verification
    assert any("-lcusolver" in check.outcome for check in answer.verification.checks)


@pytest.mark.download
def test_debian_has_an_older_one() -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("this is not Debian")
    api.toolchain("12.4", providers=["debian"], cache=cache.folder() / "store")
    answer = api.toolchain_verify("12.4", providers=["debian"], cache=cache.folder() / "store")
    assert answer.succeeded, answer.verification
    assert {"sm_50", "sm_90a"} <= set(answer.verification.architectures if answer.verification else ())
