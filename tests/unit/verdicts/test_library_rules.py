from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.verdicts import library_rules
from tests.unit.verdicts.libraries import code, library

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library

FINE = [code("sm_90"), code("compute_90")]
RAW = code("sm_90", compression="none", bytes=20_000_000, real_bytes=20_000_000, saving=17_000_000)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (library(FINE), set()),
        (library(), set()),
        (library([code("sm_90")]), {"no-ptx-for-newer-gpus"}),
        (library([RAW, code("compute_90")]), {"uncompressed-device-code"}),
        (library(FINE, rpath=("/build/cuda/lib64", "$ORIGIN")), {"runpath-into-build-machine"}),
        (library(FINE, runpath=("$ORIGIN/../nvidia/cublas/lib",)), set()),
        (library([code("sm_90", debug_count=3), code("compute_90")]), {"device-debug-code"}),
        (library(FINE, [code("sm_90", linked=False, bytes=4_400_000)]), {"relocatable-code-kept"}),
        (library([code("sm_90", linked=False, bytes=4_400_000), code("compute_90")], type="relocatable"), set()),
    ],
)
def test_a_library_gives_exactly_its_findings(subject: Library, expected: set[str]) -> None:
    findings = library_rules.examine(subject)
    assert {finding.rule for finding in findings} == expected
    assert all(finding.fix for finding in findings)


def test_the_saving_is_told() -> None:
    (finding,) = library_rules.examine(library([RAW, code("compute_90")]))
    assert finding.message == "20.0 MB of device code is stored uncompressed; ZSTD would save about 17.0 MB"


def test_no_cuda_is_advised_that_may_have_built_it() -> None:
    (finding,) = library_rules.examine(library([RAW, code("compute_90")]))
    assert finding.fix.startswith("cuwheel slim ")
    assert "CUDA" not in finding.fix
