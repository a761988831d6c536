"""`cuwheel ci github > wheels.yml`: stdout is the file, to the letter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel.cli import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("written", [False, True])
def test_stdout_is_the_workflow_also_where_the_file_is_current(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, written: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "foo"\nversion = "1"\n[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n'
    )
    file = tmp_path / ".github/workflows/wheels.yml"
    if written:
        cuwheel.ci("github", source=tmp_path, write=True)
    assert main(["ci", "github", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out == cuwheel.ci("github", source=tmp_path).text
    assert ("is as it should be" if written else "would change") in told.err
    assert file.exists() == written
