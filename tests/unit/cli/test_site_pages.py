"""The pages of the site that are written from the command line and the schemas."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from tests.fixtures.verbs import WORDS

_SCRIPT = Path(__file__).parents[3] / "site" / "documentation.py"


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("documentation", _SCRIPT)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_verb_that_help_shows_has_a_page_in_words_of_today(tmp_path: Path) -> None:
    _script()._verbs(tmp_path / "verbs")
    pages = {each.stem: each.read_text() for each in (tmp_path / "verbs").glob("*.md")}
    assert set(pages) == {*WORDS, "index"}
    assert all(f"- [{verb}]({verb}.md): " in pages["index"] for verb in WORDS)
    assert "usage: cuwheel toolchain fetch" in pages["toolchain"]
    for each in ("cuwheel record diff", "cuwheel record replay"):
        assert f"usage: {each}" in pages["record"]
    assert "usage: cuwheel lab matrix" in pages["lab"]
    assert "  cuwheel lab bench work.py:call " in pages["lab"]


def test_every_kind_of_json_has_a_page(tmp_path: Path) -> None:
    script = _script()
    script._schemas(tmp_path / "schemas")
    assert {each.stem for each in (tmp_path / "schemas").glob("*.md")} == {
        "index",
        *(each.stem for each in script.SCHEMAS.glob("*.json")),
        *("trials-1", "bisection-1", "service-1", "bench-1", "matrix-1"),
    }
