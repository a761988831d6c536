"""Every page of the documentation is reached from its first one: the site refuses pages that nothing leads to."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
MADE_WITH_THE_SITE = {"benchmarks", "security", "changelog"}  # they lie elsewhere in the repository


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"^([a-z][a-z0-9-]*)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    assert {each.stem for each in DOCS.glob("*.md")} - {"index"} == listed - MADE_WITH_THE_SITE
