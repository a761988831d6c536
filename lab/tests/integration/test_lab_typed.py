"""The laboratory's Python API as its users' type checkers see it."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path

import pytest
from tests.integration.test_typed_api import checked_by_mypy

import cuwheel_lab

_USER = Path(__file__).with_name("lab_user.py")
# One mistake in each line.
_MISTAKES = """\
cuwheel_lab.trials("TRIALS.toml", repeats="two")
cuwheel_lab.bench("work.py:call", at_once=4)
cuwheel_lab.matrix("matrix.toml", options={"phases": False})
cuwheel_lab.trials_report(3)
cuwheel_lab.trials_bisect("TRIALS.toml")
cuwheel_lab.trials_service(kind="launchd")
"""


@pytest.mark.parametrize("text", [_USER.read_text(), _MISTAKES], ids=["user", "mistakes"])
def test_every_function_is_called(text: str) -> None:
    called = {ast.unparse(each.func) for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)}
    names = [each for each in cuwheel_lab.__all__ if inspect.isfunction(getattr(cuwheel_lab, each))]
    assert {f"cuwheel_lab.{each}" for each in names} <= called


@pytest.mark.slow
def test_mistakes_are_found(tmp_path: Path) -> None:
    file = tmp_path / "mistakes.py"
    file.write_text(f"import cuwheel_lab\n{_MISTAKES}")
    assert checked_by_mypy(file, sys.executable, tmp_path) == {*range(2, len(_MISTAKES.splitlines()) + 2)}
