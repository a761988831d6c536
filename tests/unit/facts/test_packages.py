"""What comes with a framework, by its release and its CUDA."""

from __future__ import annotations

import pytest

from cuwheel.facts import packages

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("framework", "component", "release", "cuda", "comes"),
    [
        ("torch", "cublas", None, None, True),
        ("torch", "curand", "2.14.1", 13, True),
        ("torch", "curand", "2.15.0", 13, False),
        ("torch", "curand", None, None, True),  # with most of them
        ("torch", "nvToolsExt", "2.10.0+cu128", 12, True),
        ("torch", "nvToolsExt", "2.11.0", 13, False),
        ("torch", "nvtx3interop", "2.11.0", 13, True),
        ("torch", "nvtx3interop", "2.10.0", 12, False),
        ("torch", "cusparseLt", "2.5.1", 12, False),
        ("torch", "nvshmem_host", "2.9.0", None, True),
        ("torch", "npps", None, None, False),
        ("jax", "nvvm", None, 13, True),
        ("jax", "nvvm", None, 12, True),  # in the package of nvcc
        ("jax", "nvshmem_host", "0.6.0", 12, False),
        ("jax", "nvrtc", "0.6.1", 12, False),
        ("mxnet", "cublas", None, None, False),
    ],
)
def test_what_comes_with_a_framework(
    framework: str,
    component: str,
    release: str | None,
    cuda: int | None,
    comes: bool,  # noqa: FBT001
) -> None:
    assert packages.framework_brings(framework, component, release=release, cuda=cuda) is comes


def test_jax_alone_brings_no_cuda() -> None:
    assert packages.framework_brings("jax", "cublas")
    assert not packages.framework_brings("jax", "cublas", bare=True)


@pytest.mark.parametrize(
    ("soname", "framework"),
    [
        ("libtorch.so", "torch"),
        ("libtorch_cuda_linalg.so", "torch"),
        ("libc10_cuda.so", "torch"),
        ("torch_python.dll", "torch"),
        ("libtorchaudio.so", None),
        ("libtorchaudio_sox.so", None),
        ("libtorchcodec_core7.so", None),
        ("libtorchtrt.so", None),
        ("torchtrt.dll", None),
        ("libtorch_npu.so", None),
    ],
)
def test_extensions_with_torch_in_their_names_are_not_torch(soname: str, framework: str | None) -> None:
    assert packages.framework_of(soname) == framework
