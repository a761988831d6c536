from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import errors
from cuwheel_core import errors as core_errors
from cuwheel_core.errors import CuwheelError

if TYPE_CHECKING:
    import pytest

DOCUMENTED = Path(__file__).parents[3] / "docs" / "reference" / "exit-codes.md"


def _classes() -> list[type[CuwheelError]]:
    found = [each for module in (core_errors, errors) for _, each in inspect.getmembers(module, inspect.isclass)]
    return [each for each in dict.fromkeys(found) if issubclass(each, CuwheelError) and each is not CuwheelError]


def test_each_class_of_error_has_its_own_exit_code() -> None:
    own = {each: each.__dict__["exit_code"] for each in _classes() if "exit_code" in each.__dict__}
    reserved = [errors.EXIT_OK, errors.EXIT_NO, errors.EXIT_BUG, errors.EXIT_INTERRUPTED]
    assert len({*own.values(), *reserved}) == len(own) + len(reserved)
    for each in _classes():
        assert each.exit_code >= 2, each  # every one has a code, its own or its parent's


def test_every_exit_code_is_documented() -> None:
    page = DOCUMENTED.read_text()
    for each in _classes():
        assert f"| {each.exit_code} | {each.meaning} |" in page
    for code in (errors.EXIT_OK, errors.EXIT_NO, errors.EXIT_BUG, errors.EXIT_INTERRUPTED):
        assert f"| {code} |" in page


def test_errors_compose_their_messages() -> None:
    error = errors.ConfigurationError("fleet.toml", ["a is missing", "b is no number"])
    assert str(error) == "fleet.toml has 2 problems:\n  - a is missing\n  - b is no number"
    unknown = core_errors.UnknownNameError("GPU", "h1000", ["H100", "H200"])
    assert unknown.hint == "did you mean 'H100' or 'H200'?"
    tool = errors.ToolError(["nvcc", "-c"], "failed with status 2", "line 1\nline 2\n")
    assert str(tool) == "nvcc failed with status 2\n  | line 1\n  | line 2"


def test_problems_without_end_are_counted() -> None:
    error = errors.ConfigurationError("x.toml", [f"problem {number}" for number in range(50_000)])
    assert error.message.startswith("x.toml has 50000 problems:\n  - problem 0\n")
    assert error.message.endswith("- problem 99\n  and 49,900 more")
    assert len(error.problems) == 50_000


def test_a_path_that_windows_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """It then says that there is no such file."""
    deep = "C:\\" + "a folder\\" * 40
    assert not core_errors.UnreadableError("C:\\x", "no such file or folder").hint
    monkeypatch.setattr("os.name", "nt")
    assert not core_errors.UnreadableError("C:\\x", "no such file or folder").hint
    assert "LongPathsEnabled" in core_errors.UnreadableError(deep, "no such file or folder").hint
    assert core_errors.UnreadableError(deep, "it is gone", hint="look").hint.startswith("look\nits path has ")
    assert not core_errors.UnreadableError(f"\\\\?\\{deep}", "no such file or folder").hint
