"""Why a symbol has no name on a GPU: from libraries that nvcc linked for the truth set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.tracing import reasons
from cuwheel.tracing.events import Event
from cuwheel.tracing.reasons import Files, image_of
from cuwheel.tracing.traced import Gpu
from cuwheel_core.facts.arch import Capability
from tests.gpu.runner import unpack

if TYPE_CHECKING:
    from cuwheel.tracing.reasons import Reason

SET = Path(__file__).parents[2] / "gpu" / "truth"
H200 = Gpu(name="H200", capability=Capability(9, 0), cuda="13.0")


def _reason(folder: Path, variant: str, kernel: str) -> Reason:
    """Of a 500 from the linked code, or the last container, of that variant."""
    rows = {row["id"]: row for row in json.loads((SET / "manifest.json").read_text())["variants"]}
    unpack(SET / "files.tar.xz", folder, rows[variant]["file"])
    files = Files()
    path = str(folder / rows[variant]["file"])
    library = files.at(path).library
    assert library is not None
    place = max(each.offset for each in library.containers if each.section == ".nv_fatbin")
    event = Event(event="failure", time=2, api="cuLibraryGetKernel", error=500, name=kernel, file=path, offset=place)
    return reasons.reason_for(event, Event(event="process", time=1), image_of(event, files), H200)


@pytest.mark.parametrize(
    ("variant", "kernel", "words", "fix"),
    [
        (
            "nvcc 13.0 shared kernel(sm_90 rdc) weak-kernel(sm_80 rdc) linked(sm_90)",
            "_Z5u1_ofILi22EEvPi",
            "u1_of<22>(int*) [_Z5u1_ofILi22EEvPi]: the device link for sm_90 left it out",
            "compile that object for sm_90 too",
        ),
        (
            "nvcc 13.0 shared newer-only(sm_90 sm_100 from 100)",
            "u0",
            "u0: the code for sm_90, which this GPU takes, lacks it",
            "compile it for sm_90 too",
        ),
        (
            "nvcc 13.0 shared kernel(sm_90 rdc) kernel(sm_90 rdc) variable(sm_80) linked(sm_90)",
            "_Z2u0f",
            "is not in the file; under another name it has u0",
            "by the name that the device code has",
        ),
    ],
)
def test_a_symbol_without_a_name(tmp_path: Path, variant: str, kernel: str, words: str, fix: str) -> None:
    why = _reason(tmp_path, variant, kernel)
    assert words in why.reason.replace("void ", "").replace("int *", "int*")
    assert fix in why.fix
    assert any(kernel in each for each in why.kernels)
