"""`3.13t` is Python 3.13 without the GIL, on the command line and in a fleet file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.machine import fleet
from cuwheel.machine.fleet import Refinement

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("given", "python", "without"), [("3.13t", "3.13", True), ("3.13", "3.13", False)])
def test_a_t_says_that_there_is_no_gil(tmp_path: Path, given: str, python: str, *, without: bool) -> None:
    machine = Refinement(python=given).apply(fleet.from_gpu("h100"))
    (tmp_path / "fleet.toml").write_text(f'[[machine]]\nname = "a"\ngpu = "h100"\npython = "{given}"\n')
    (written,) = fleet.read_fleet_file(tmp_path / "fleet.toml")
    assert [(each.python, each.free_threaded) for each in (machine, written)] == [(python, without)] * 2
