"""The page of the Python API: its examples run, and print what it says."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

import cuwheel
from tests.fixtures.wheels import wheel

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", _PAGE.partition("## Functions")[0], re.DOTALL)


@pytest.mark.skipif(os.name == "nt", reason="its wheel is for Linux, and machines are as this one")
def test_the_examples_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as somebody types them: later ones use what earlier ones have made."""
    library = (_ROOT / "tests" / "fixtures" / "bin" / "plain-130.so").read_bytes()
    wheel(tmp_path / "dist", {"pkg/__init__.py": b"", "pkg/libpkg.so": library})
    (tmp_path / "build.log").write_text("nvcc fatal   : Unsupported gpu architecture 'compute_120'\n")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = []
    for code, _ in _BLOCKS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "docs/reference/api.md", "exec"), names)  # noqa: S102 - our own page
        printed.append(out.getvalue())
    assert printed == [text for _, text in _BLOCKS]
    assert len(printed) > 1


def test_every_public_name_is_on_the_page() -> None:
    said = set(re.findall(r"^###+ (\w+)$|^\| `(\w+)` \|", _PAGE, re.MULTILINE))
    assert set(cuwheel.__all__) - {"__version__", "CuwheelError"} - {name for pair in said for name in pair} == set()
