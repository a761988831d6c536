"""Two builds without a witness fit only where they recorded the same things of themselves."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cuwheel.changes.graft import decide
from cuwheel.changes.graft.fitting import misfit_finding
from cuwheel.device_code.description import BuildRecord, Description, File, Tools

TOOLS = Tools(provider="index", release="13.0.2", nvcc="13.0.88", platform="linux_x86_64", host_compiler="gcc 12.2.0")
RECORD = BuildRecord(flags="f" * 64, installed="i" * 64, listed=("sm_80", "sm_90"))
BASE = Description(cuda="13.0", archs=("sm_80",), sources="s" * 64, toolchain=TOOLS, build=RECORD)


def test_the_same_record_fits() -> None:
    assert decide.other_record(BASE, replace(BASE, archs=("sm_90",))) is None


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"sources": "t" * 64}, "the source: ssssssssssssssss… in the base, tttttttttttttttt… in the donor"),
        ({"cuda": "13.4"}, "CUDA: 13.0 in the base, 13.4"),
        ({"toolchain": replace(TOOLS, nvcc="13.0.99")}, "nvcc: 13.0.88"),
        ({"toolchain": replace(TOOLS, host_compiler="gcc 13.1.0")}, "the host compiler: gcc 12.2.0"),
        ({"toolchain": replace(TOOLS, platform="linux_aarch64")}, "the platform"),
        ({"toolchain": replace(TOOLS, archives=(File(file="a", sha256="0"),))}, "the toolkit's archives: other files"),
        ({"toolchain": None}, "unknown in the donor"),
        ({"build": replace(RECORD, listed=("sm_90",))}, "the list of architectures: sm_80 sm_90"),
        ({"build": replace(RECORD, flags="g" * 64)}, "the flags and variables"),
        ({"build": replace(RECORD, installed="j" * 64)}, "the installed build requirements"),
    ],
)
def test_each_difference_is_refused_and_named(changed: dict[str, Any], what: str) -> None:
    found = decide.other_record(BASE, replace(BASE, **changed))
    assert found
    assert found.rule == "graft-other-record"
    assert what in found.why
    assert "--shares" in misfit_finding("base", found).fix


@pytest.mark.parametrize(
    ("base", "donor", "who"),
    [
        (None, None, "neither of them has a record"),
        (BASE, None, "the donor has no record"),
        (replace(BASE, build=None), BASE, "the base has no record"),
    ],
)
def test_without_a_record_there_is_no_proof(base: Description | None, donor: Description | None, who: str) -> None:
    found = decide.other_record(base, donor)
    assert found
    assert found.rule == "graft-no-proof"
    assert who in found.why
