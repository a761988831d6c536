from __future__ import annotations

from pathlib import Path

import pytest

from cuwheel.machine.compilers import nvcc_version_in
from cuwheel.toolchains import archives, workplace

INDEX = ("bin/nvcc", "nvvm/bin/cicc", "include/cuda.h", "lib/libcudart.so.13", "lib/libx.so.9", "lib/libx.so.10.2")


def files(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("CUresult CUDAAPI cuInit(unsigned int);")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = files(tmp_path / "root", *INDEX)
    (root / "lib" / "libgone.so").symlink_to("libgone.so.1")
    workplace.complete_toolkit(root, "x86_64")
    return root


def test_what_wheels_lack_is_put_right(root: Path) -> None:
    assert (root / "lib64").readlink() == Path("lib")
    assert (root / "nvvm" / "lib64").resolve() == root / "lib"
    assert (root / "lib" / "libcudart.so").readlink() == Path("libcudart.so.13")
    assert (root / "lib" / "libx.so").readlink() == Path("libx.so.10.2")  # the newest, not the last by name
    assert all((root / name).stat().st_mode & 0o111 == 0o111 for name in ("bin/nvcc", "nvvm/bin/cicc"))
    assert not (root / "lib" / "libgone.so").is_symlink()
    assert (root / "lib64" / "stubs" / "libcuda.so").read_bytes()[:4] == b"\x7fELF"


def test_nothing_is_done_twice(root: Path) -> None:
    workplace.complete_toolkit(root, "x86_64")
    assert len(list((root / "lib").iterdir())) == 6


def test_nvidias_own_stub_is_kept(tmp_path: Path) -> None:
    root = files(tmp_path / "root", *INDEX, "lib/stubs/libcuda.so")
    workplace.complete_toolkit(root, "x86_64")
    assert b"ELF" not in (root / "lib" / "stubs" / "libcuda.so").read_bytes()


def test_version() -> None:
    assert nvcc_version_in("Cuda compilation tools, release 12.4, V12.4.131\nBuild x") == "12.4.131"
    assert nvcc_version_in("command not found") is None


def test_debians_places(tmp_path: Path) -> None:
    unpacked = files(
        tmp_path / "deb",
        "usr/bin/nvcc", "usr/bin/ptxas", "usr/bin/unrelated",
        "usr/lib/nvidia-cuda-toolkit/bin/nvcc", "usr/lib/nvidia-cuda-toolkit/bin/cicc",
        "usr/lib/nvidia-cuda-toolkit/bin/crt/link.stub", "usr/lib/nvidia-cuda-toolkit/libdevice/libdevice.10.bc",
        "usr/include/cuda.h", "usr/include/thrust/version.h",
        "usr/lib/x86_64-linux-gnu/libcudart_static.a", "usr/lib/x86_64-linux-gnu/libcublas_static.a",
        "usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127", "usr/lib/x86_64-linux-gnu/stubs/libcuda.so",
        "usr/share/doc/nvidia-cuda-dev/copyright",
    )  # fmt: skip
    (unpacked / "usr/lib/nvidia-cuda-toolkit/bin/nvcc").write_text("the real one")
    root = tmp_path / "root"
    archives.arrange_debian_files(unpacked, root)
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert found == {
        "bin/nvcc", "bin/nvcc.profile", "bin/ptxas", "bin/crt/link.stub", "nvvm/bin/cicc",
        "nvvm/libdevice/libdevice.10.bc", "include/cuda.h", "include/thrust/version.h", "lib/libcudart_static.a",
        "lib/libcudart.so.12.4.127", "lib/stubs/libcuda.so", "licenses/nvidia-cuda-dev/copyright",
    }  # fmt: skip
    assert (root / "bin" / "nvcc").read_text() == "the real one"
    assert "$(_HERE_)/.." in (root / "bin" / "nvcc.profile").read_text()
