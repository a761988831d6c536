from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.facts.spellings import bitsandbytes, cargo, cmake, nvcc, torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.facts.spellings.row import ArchList

CMAKE, TORCH, NVCC, BITSANDBYTES, CARGO = cmake.read, torch.read, nvcc.read, bitsandbytes.read, cargo.read


@pytest.mark.parametrize(
    ("read", "text", "archs", "unknown"),
    [
        (CMAKE, "80", "sm_80 compute_80", ""),
        (CMAKE, "80-real; 90a-virtual", "sm_80 compute_90a", ""),
        (CMAKE, "9.0;sm_90;80-imaginary", "", "9.0 sm_90 80-imaginary"),
        (TORCH, "8.0 8.6;9.0+PTX", "sm_80 sm_86 sm_90 compute_90", ""),
        (TORCH, "Ampere", "sm_80 sm_86 compute_86", ""),
        (TORCH, "Ampere+Tegra", "sm_87", ""),
        (TORCH, "90;9.0+SASS;Fermi", "", "90 9.0+SASS Fermi"),
        (NVCC, "-gencode arch=compute_80,code=sm_80", "sm_80", ""),
        (NVCC, "-gencode=arch=compute_90,code=[sm_90,compute_90]", "sm_90 compute_90", ""),
        (NVCC, '--generate-code "arch=compute_90,code=\\"sm_90,compute_90\\""', "sm_90 compute_90", ""),
        (NVCC, "-arch=sm_90", "sm_90 compute_90", ""),
        (NVCC, "--gpu-architecture sm_90a", "sm_90a compute_90a", ""),
        (NVCC, "-arch=compute_80 -code=sm_80,sm_86,compute_80", "sm_80 sm_86 compute_80", ""),
        (NVCC, "sm_80, lto_90;compute_90", "sm_80 lto_90 compute_90", ""),
        (NVCC, "-gencode arch=compute_80 -O3 80", "", "-gencode arch=compute_80 -O3 80"),
        (BITSANDBYTES, "90;89", "sm_90 sm_89 compute_90", ""),
        (BITSANDBYTES, "native", "", "native"),
        (CARGO, " 89 ", "sm_89", ""),
        (CARGO, "89;90", "", "89;90"),
    ],
)
def test_what_a_list_asks_for(read: Callable[[str], ArchList], text: str, archs: str, unknown: str) -> None:
    found = read(text)
    assert " ".join(map(str, found.archs)) == archs
    assert " ".join(found.unknown) == unknown
    assert not found.open


@pytest.mark.parametrize(
    ("read", "text"), [(CMAKE, "native"), (CMAKE, "all-major"), (TORCH, "All"), (NVCC, "-arch=native")]
)
def test_words_that_a_build_system_resolves_itself(read: Callable[[str], ArchList], text: str) -> None:
    found = read(text)
    assert found.open
    assert not found.archs
    assert not found.unknown
