"""Kernels × GPUs: what is said of each kernel agrees with what is said of its library, on real and on made files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel_core import api
from cuwheel_core.facts import gpus
from cuwheel_core.support.buffer import MemoryBuffer
from cuwheel_core.verdicts.coverage import matrix_of
from cuwheel_core.verdicts.device import Device
from cuwheel_core.verdicts.drivers import loader_of
from cuwheel_core.verdicts.predict import reach_of
from tests.unit.device_code import build

if TYPE_CHECKING:
    from cuwheel_core.verdicts.choice import How

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
FIXTURES = [each for each in sorted(BIN.iterdir()) if each.suffix in (".so", ".dll", ".a", ".o", ".cubin", ".fatbin")]
DEVICES = {str(each): Device(capability=each) for each in gpus.current_capabilities()}


def ptx(name: str, *, wants: str = "") -> bytes:
    wanted = f".extern .func {wants}(.param .b64 p);\n" if wants else ""
    return f".version 9.0\n.target sm_80\n{wanted}.visible .entry {name}(.param .u64 out) {{ ret; }}\n".encode()


def with_objects(*objects: bytes) -> dict[str, dict[str, How]]:
    """How each kernel of these relocatable objects runs, by GPU; nothing linked stands beside them."""
    file = build.library(*map(build.container, objects))
    renamed = {".nv_fatbin": "__nv_relfatbin", "__nv_relfatbin": ".unused"}
    for section in file.sections:
        section.name = renamed.get(section.name, section.name)
    found = matrix_of([(MemoryBuffer("x.so", file.build()), None)], DEVICES, [])
    return {row.name: dict(zip(found.devices, row.on, strict=True)) for row in found.kernels}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda each: each.name)
def test_kernels_agree_with_their_library(path: Path) -> None:
    library = api.read(path)
    found = api.coverage(path, list(DEVICES))
    reach = reach_of(library)
    for at, name in enumerate(found.devices):
        loader = loader_of(library, DEVICES[name])
        assert loader
        outcome = reach.by_code(loader).outcome
        hows = {row.on[at] for row in found.kernels}
        if outcome == "fails":
            assert hows <= {"none"}, name
        elif outcome in ("native", "compatible", "jit") and not reach.chooses.itself:
            assert "none" not in hows, name


def test_objects_are_made_ready_by_the_driver() -> None:
    """Their machine code is linked at load: not `native`, whatever it was made for."""
    found = with_objects(build.entry(build.CUBIN, 90, build.cubin({"mark": (8, 0, 0)})))
    assert found["mark"]["9.0"] == "jit"
    assert found["mark"]["8.0"] == "none"


def test_a_link_that_fails_takes_all_kernels_with_it() -> None:
    """One object calls into another that does not fit: nothing runs, though its own code would fit."""
    caller = build.entry(build.PTX, 80, ptx("first", wants="helper"), isa=(9, 0))
    callee = build.entry(build.PTX, 90, ptx("second") + b".visible .func helper(.param .b64 p) { ret; }\n", isa=(9, 0))
    found = with_objects(caller, callee)
    assert (found["first"]["9.0"], found["second"]["9.0"]) == ("jit", "jit")
    assert (found["first"]["8.0"], found["second"]["8.0"]) == ("none", "none")


def test_a_link_leaves_out_what_does_not_fit() -> None:
    alone = build.entry(build.PTX, 80, ptx("first"), isa=(9, 0))
    newer = build.entry(build.PTX, 90, ptx("second"), isa=(9, 0))
    found = with_objects(alone, newer)
    assert (found["first"]["8.0"], found["second"]["8.0"]) == ("jit", "none")
