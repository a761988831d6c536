"""`graft --compile`: what is told before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

import cuwheel
from cuwheel.errors import UsageError

BIN = Path(__file__).parents[3] / "fixtures" / "bin"
PTX = """\
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel() { ret; }
"""


@pytest.mark.parametrize(("version", "told"), [(None, "is the input"), ("2", "is for wheels")])
def test_a_file_of_ptx_is_not_written_over(version: str | None, told: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.ptx"
    file.write_text(PTX)
    with pytest.raises(UsageError, match=told):
        cuwheel.graft(file, compile=["sm_90"], output=file, version=version)
    assert file.read_text() == PTX


def test_an_environment_has_no_output(tmp_path: Path) -> None:
    """It would be changed in place, and the output would not be there."""
    with pytest.raises(UsageError, match="in place"):
        cuwheel.graft(env=tmp_path, compile=["sm_90"], output=tmp_path / "out")


def test_what_a_link_adds_is_estimated_of_all_its_objects(tmp_path: Path) -> None:
    base = BIN / "rdc-130.so"
    made = cuwheel.graft(base, compile=["sm_120"], output=tmp_path, dry_run=True)
    (library,) = made.libraries
    (added,) = library.added
    objects = [each for each in cuwheel.inspect(base, entries=True).libraries[0].entries if each.kind == "ptx"]
    assert len(objects) > 1
    assert min(each.bytes for each in objects) * 0.3 < added.bytes < sum(each.bytes for each in objects)
    assert library.bytes_after == library.bytes_before + added.bytes
