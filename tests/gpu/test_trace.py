"""`trace` on a GPU: for each program that fails the right error, kernel, library and architectures."""

from __future__ import annotations

import ctypes
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.gpu import traced

if TYPE_CHECKING:
    from pathlib import Path


def gpu_there() -> bool:
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0)
    except OSError:
        return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_there(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
]


def test_every_program_is_explained(tmp_path: Path) -> None:
    results = traced.run(tmp_path)
    assert {name: found for name, found in results.items() if found} == {}
    assert len(results) >= 29
