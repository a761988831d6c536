"""What `check` says of a library that nvcc made, before it is slimmed for a GPU and after."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.errors import UnavailableError
from tests.fixtures import toolkits

if TYPE_CHECKING:
    from pathlib import Path

# All names are local, so that one object can be linked many times: each has a container of its own.
SOURCE = """
static __global__ void scale(float* x) { x[threadIdx.x] *= 2.0f; }
__attribute__((used)) static void (*const kept)(float*) = scale;
"""
BOTH, HOPPER, AMPERE, BLACKWELL = ("sm_80", "sm_90"), ("sm_90",), ("sm_80",), ("sm_100",)
FAMILY = ("sm_100f",)
Archs = tuple[str, ...]


def toolkit() -> Path:
    try:
        return toolkits.nvcc("13.0")
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[Archs, Path]:
    """By what they were compiled for."""
    folder = tmp_path_factory.mktemp("objects")
    nvcc = toolkit() / "bin" / "nvcc"
    (folder / "scale.cu").write_text(SOURCE)
    made: dict[Archs, Path] = {}
    for archs in (BOTH, HOPPER, AMPERE, BLACKWELL, FAMILY):
        made[archs] = folder / f"{'-'.join(archs)}.o"
        codes = [f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}" for arch in archs]
        command: list[str | Path] = [nvcc, *codes, "-Xcompiler", "-fPIC", "-c", folder / "scale.cu", "-o", made[archs]]
        subprocess.run(command, check=True, capture_output=True)
    return made


def linked(folder: Path, objects: dict[Archs, Path], containers: dict[Archs, int]) -> Path:
    """A library with so many containers of each kind."""
    whole, lib = folder / "libscale.so", toolkit() / "lib64"
    listed = [objects[archs] for archs, count in containers.items() for _ in range(count)]
    subprocess.run(["g++", "-shared", "-o", whole, *listed, f"-L{lib}", "-lcudart_static", "-lrt", "-ldl"], check=True)
    return whole


@pytest.mark.parametrize(
    ("containers", "outcome"),
    [
        pytest.param({BOTH: 18, BLACKWELL: 3}, "native", id="a list of their own"),
        pytest.param({BOTH: 20, FAMILY: 1}, "native", id="one for a family"),
        pytest.param({BOTH: 3, BLACKWELL: 1}, "partial", id="few containers"),
        pytest.param({BOTH: 3, AMPERE: 2}, "partial", id="few containers, some of them forgotten"),
        pytest.param({HOPPER: 4, BOTH: 2}, "native", id="all of them"),
    ],
)
def test_slimming_changes_no_verdict(
    tmp_path: Path, objects: dict[Archs, Path], containers: dict[Archs, int], outcome: str
) -> None:
    whole, slim = linked(tmp_path, objects, containers), tmp_path / "slim"
    made = cuwheel.slim(whole, machines=["h100"], output=slim)
    assert made.files[0].dropped
    assert "gaps-out-of-sight" not in [each.rule for each in made.findings]
    before, after = (cuwheel.check(path, on=["h100"]).verdicts[0] for path in (whole, slim / whole.name))
    assert before.outcome == outcome
    assert (after.outcome, after.predicted_error) == (before.outcome, before.predicted_error)


@pytest.mark.parametrize("forgotten", [1, 3])
def test_where_slimming_hides_a_gap_it_says_so(tmp_path: Path, objects: dict[Archs, Path], forgotten: int) -> None:
    whole, slim = linked(tmp_path, objects, {BOTH: 18, AMPERE: forgotten}), tmp_path / "slim"
    made = cuwheel.slim(whole, machines=["h100"], output=slim)
    before, after = (cuwheel.check(path, on=["h100"]).verdicts[0] for path in (whole, slim / whole.name))
    assert (before.outcome, after.outcome) == ("partial", "native")  # emptied, they look as if it chose
    (told,) = [each for each in made.findings if each.rule == "gaps-out-of-sight"]
    assert told.severity == "warning"
    assert told.evidence == (f"{forgotten} of {18 + forgotten} containers have nothing for h100",)


def test_a_gap_that_stays_visible_is_not_told(tmp_path: Path, objects: dict[Archs, Path]) -> None:
    whole, slim = linked(tmp_path, objects, {BOTH: 18, AMPERE: 3}), tmp_path / "slim"
    made = cuwheel.slim(whole, machines=["h100", "a100"], output=slim)
    assert "gaps-out-of-sight" not in [each.rule for each in made.findings]
    assert cuwheel.check(slim / whole.name, on=["h100"]).verdicts[0].outcome == "partial"
