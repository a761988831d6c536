"""Every page of the documentation is reached from its first one: the site refuses pages that nothing leads to."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
MADE_WITH_THE_SITE = {"benchmarks", "security", "changelog"}  # they lie elsewhere in the repository


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"^([a-z][a-z0-9-]*)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    assert {each.stem for each in DOCS.glob("*.md")} - {"index"} == listed - MADE_WITH_THE_SITE


def test_no_link_of_the_site_leads_out_of_it() -> None:
    """Links to files of the repository, with a heading or without, become names or links to copies."""
    spec = importlib.util.spec_from_file_location("site_documentation", DOCS.parent / "site" / "documentation.py")
    assert spec
    assert spec.loader
    documentation = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(documentation)
    pages = {path: len(path.relative_to(DOCS).parts) - 1 for path in DOCS.rglob("*.md")}
    for path, depth in pages.items():
        text = documentation._links_within(path.read_text(), depth=depth)
        outside = re.findall(rf"\]\(({re.escape('../' * (depth + 1))}[^)]*)\)", text)
        assert outside == [], path
