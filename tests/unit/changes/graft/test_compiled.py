"""`graft --compile`: what is told before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

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
