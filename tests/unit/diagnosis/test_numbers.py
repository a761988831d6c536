"""CUDA's errors, told by number alone, in the words of programs of all kinds."""

from __future__ import annotations

import pytest

from cuwheel.diagnosis import rows, text
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.pattern import check_pattern

CAUSES = {
    2: "gpu-out-of-memory",
    34: "libcuda-stub-loaded",
    35: "driver-too-old-for-runtime",
    100: "no-nvidia-driver-or-gpu",
    209: "no-kernel-image",
    222: "ptx-newer-than-driver",
    719: "not-cuda",
    803: "driver-library-mismatch",
    999: "driver-state-broken",
}
LINES = (
    "cudaGetDeviceCount returned {}",
    "[miner] CUDA error: error code {}",
    "CUDA error {} at grid.cu:88",
    "Cuda failure: {}",
    "assertion failed: error == cudaSuccess ({} vs. 0)",
    "cudnnEngine.cpp (56) - Cuda Error in initializeContext: {}",
    "numba.cuda.cudadrv.driver.CudaAPIError: [{}] Call to cuInit failed",
    'msg="Unable to load cudart library /usr/lib/libcuda.so.1: cuda driver library init failure: {}"',
    "cuInit(0) failed with error code {}",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("error", CAUSES)
def test_errors_by_number(line: str, error: int) -> None:
    assert explain(text.parse(line.format(error))).causes[0].id == CAUSES[error]


def test_a_number_is_not_the_beginning_of_another() -> None:
    assert not explain(text.parse("assertion failed: error == cudaSuccess (349 vs. 0)")).causes
    assert not any(
        check_pattern(each).find(line, line) for each in rows.texts_of_errors((34,)) for line in ("cuda error 349",)
    )


def test_texts() -> None:
    assert rows.texts_of_errors(()) == ()
    assert all("<34|35>" in each for each in rows.texts_of_errors((34, 35)))
    assert all(check_pattern(each) for each in rows.texts_of_errors((34,)))
