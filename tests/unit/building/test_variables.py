from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cuwheel.building import workspace
from cuwheel.building.tables import Table
from cuwheel.errors import UsageError
from cuwheel.network import venvs
from tests.fixtures import systems
from tests.unit.building import jobs_world as world

if TYPE_CHECKING:
    from pathlib import Path

NAMED = (
    *("CUDA_HOME", "CUDA_PATH", "CUDACXX", "CUDAToolkit_ROOT", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN", "FORCE_CUDA"),
    *("MAX_JOBS", "NVCC_THREADS", "CMAKE_BUILD_PARALLEL_LEVEL", "CUDAARCHS", "TORCH_CUDA_ARCH_LIST", "CMAKE_ARGS"),
    *("PATH", "HOME", "TMPDIR", "SOURCE_DATE_EPOCH"),
)


def seen(given: workspace.VariableInputs) -> dict[str, str]:
    return {each.name: each.value for each in workspace.job_settings(given)}


def test_everything_that_matters_is_set(tmp_path: Path) -> None:
    made = seen(world.given(tmp_path))
    assert [name for name in NAMED if name not in made] == []
    assert made["CUDACXX"] == "/store/kit/bin/nvcc"
    assert made["CUDAARCHS"] == "89-real;90-real"
    assert made["CMAKE_ARGS"] == "-DCMAKE_CUDA_ARCHITECTURES=89-real;90-real"
    assert made["TORCH_CUDA_ARCH_LIST"] == "8.9;9.0"
    assert made["HOME"] == str(tmp_path / "home")
    assert made["SOURCE_DATE_EPOCH"] == "1000000000"


def test_nothing_leaks_in_from_the_caller(tmp_path: Path) -> None:
    caller = {
        "PATH": "/opt/conda/bin:/usr/bin",
        "CUDA_HOME": "/usr/local/cuda-12.0",
        "CFLAGS": "-march=native",
        "LD_LIBRARY_PATH": "/opt/cuda/lib64",
        "PYTHONPATH": "/home/me",
        "TORCH_CUDA_ARCH_LIST": "5.0",
        "NVCC_APPEND_FLAGS": "-G",
        "LD_PRELOAD": "/x.so",
        "PIP_TARGET": "/x",
        "UV_PYTHON": "3.8",
        "UV_PUBLISH_TOKEN": "t",
        "CARGO_REGISTRY_TOKEN": "t",
        "CMAKE_GENERATOR": "Unix Makefiles",
        "LC_ALL": "de_DE.UTF-8",
    }
    made = seen(world.given(tmp_path, caller=caller))
    assert {name: made[name] for name in caller if made.get(name) == caller[name]} == {}
    assert "conda" not in made["PATH"]
    assert {"CFLAGS", "LD_LIBRARY_PATH", "PYTHONPATH", "NVCC_APPEND_FLAGS", "PIP_TARGET"}.isdisjoint(made)
    assert {"UV_PUBLISH_TOKEN", "CARGO_REGISTRY_TOKEN"}.isdisjoint(made)


def test_indexes_proxies_and_what_is_asked_for_pass(tmp_path: Path) -> None:
    caller = {"HTTPS_PROXY": "http://p", "PIP_INDEX_URL": "https://i", "MY_TOKEN": "t", "MY_X": "x", "OTHER": "o"}
    made = seen(world.given(tmp_path, caller=caller, table=Table(pass_through=("MY_*",))))
    assert {name: made.get(name) for name in caller} == {**caller, "OTHER": None}


def test_the_toolkit_comes_before_every_other_nvcc_and_the_environment_before_all(tmp_path: Path) -> None:
    folders = seen(world.given(tmp_path))["PATH"].split(os.pathsep)
    assert folders[:2] == [str(venvs.interpreter(tmp_path / "venv").parent), "/store/kit/bin"]
    assert folders[-1] == workspace.SYSTEM_PATH[-1]


def test_what_lies_in_the_users_home_is_still_found(tmp_path: Path) -> None:
    (tmp_path / ".cargo").mkdir()
    made = seen(world.given(tmp_path, caller={"HOME": str(tmp_path)}))
    assert made["CARGO_HOME"] == str(tmp_path / ".cargo")
    assert "RUSTUP_HOME" not in made
    inside = world.toolchain(prefix=("docker", "run", "image"))
    assert "CARGO_HOME" not in seen(world.given(tmp_path, caller={"HOME": str(tmp_path)}, toolchain=inside))


def test_texts_are_filled_and_cmake_arguments_added(tmp_path: Path) -> None:
    table = Table(environment={"A": "{cuda_digits} {archs.nvcc} {{x}}", "CMAKE_ARGS": "-DX={jobs}", "MAX_JOBS": "9"})
    made = seen(world.given(tmp_path, table=table))
    nvcc = "-gencode arch=compute_89,code=sm_89 -gencode arch=compute_90,code=sm_90"
    assert made["A"] == f"130 {nvcc} {{x}}"
    assert made["CMAKE_ARGS"] == "-DCMAKE_CUDA_ARCHITECTURES=89-real;90-real -DX=2"
    assert made["MAX_JOBS"] == "9"


def test_a_text_that_cannot_be_said_is_an_error(tmp_path: Path) -> None:
    from msgspec.structs import replace

    without = replace(world.toolchain(), host_compiler=None)
    with pytest.raises(UsageError, match="host_compiler"):
        seen(world.given(tmp_path, toolchain=without, table=Table(environment={"A": "{host_compiler}"})))


def test_only_the_builds_own_spelling_is_approximated(tmp_path: Path) -> None:
    """Two architectures in a variable that holds one."""
    assert "CUDA_COMPUTE_CAP" not in seen(world.given(tmp_path, backend="torch"))
    assert seen(world.given(tmp_path, backend="cargo"))["CUDA_COMPUTE_CAP"] == "89"


def test_parts_of_the_toolkit_are_named_as_projects_ask_for_them(tmp_path: Path) -> None:
    made = seen(world.given(tmp_path, toolchain=world.toolchain(components=("cudnn",))))
    assert made["CUDNN_ROOT"] == made["CUDNN_PATH"] == "/store/kit"
    assert "NCCL_ROOT" not in made


@pytest.mark.parametrize(
    ("cxx", "cc"),
    [
        ("g++-12", "gcc-12"),
        ("x86_64-conda-linux-gnu-g++", "x86_64-conda-linux-gnu-gcc"),
        ("clang++-15", "clang-15"),
        ("c++", "cc"),
    ],
)
def test_the_c_compiler_beside_a_cxx_one(tmp_path: Path, cxx: str, cc: str) -> None:
    assert workspace.c_compiler(str(tmp_path / cxx)) == ""
    (tmp_path / cc).touch()
    assert workspace.c_compiler(str(tmp_path / cxx)) == str(tmp_path / cc)
    assert workspace.c_compiler(cxx) == cc  # by name alone: it is in an image


@systems.NO_MODES
def test_tools_of_the_caller_are_linked_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older cargo of the system is not taken for the caller's; shims are, where the system has nothing."""
    own, shims, system = tmp_path / "own", tmp_path / "shims", tmp_path / "system"
    for folder, names in ((own, "cargo gcc nvcc rustc"), (shims, "cmake ninja"), (system, "cargo cmake gcc git")):
        folder.mkdir()
        for name in names.split():
            (folder / name).touch()
            (folder / name).chmod(0o755)
    (own / "rustc").chmod(0o644)
    monkeypatch.setattr(workspace, "SYSTEM_PATH", (str(system),))
    found = dict(workspace.tool_links(f"{own}:{shims}:{system}"))
    assert found == {"cargo": str(own / "cargo"), "ninja": str(shims / "ninja")}
