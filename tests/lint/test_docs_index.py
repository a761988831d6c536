"""Every page of the documentation is reached from its first one: the site refuses pages that nothing leads to."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
# They lie elsewhere in the repository, or are written with the site.
MADE_WITH_THE_SITE = {"benchmarks", "security", "changelog", "reference/verbs/index", "reference/schemas/index"}
OWN_CONTENTS = {"rules", "causes"}  # folders whose README leads to their pages


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"^([a-z][a-zA-Z0-9/-]*)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    there = {
        each.relative_to(DOCS).with_suffix("").as_posix()
        for each in DOCS.rglob("*.md")
        if each.parent.name not in OWN_CONTENTS or each.stem == "README"
    }
    assert there - {"index"} == listed - MADE_WITH_THE_SITE


def test_every_page_says_in_its_first_line_who_needs_it() -> None:
    parts = ("start", "howto", "why")
    silent = [
        each.relative_to(DOCS).as_posix()
        for part in parts
        for each in (DOCS / part).glob("*.md")
        if each.name != "catalogue-contents.md" and not each.read_text().split("\n")[2].startswith("For ")
    ]
    assert not silent, "\n".join(silent)


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


def test_instructions_are_in_short_sentences() -> None:
    """At most 25 words on average, without commands, tables and headings."""
    long = []
    for each in (*DOCS.glob("start/*.md"), *DOCS.glob("howto/*.md"), DOCS.parent / "README.md"):
        text = re.sub(r"```.*?```|^( {4,}|\||#).*?$", "", each.read_text(), flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
        paragraphs = re.split(r"\n\s*\n|\n(?=(?:[-*]|\d+\.) )", text)
        sentences = [one.split() for part in paragraphs for one in re.split(r"(?<=[.!?])\s+", part.strip())]
        words = [len(one) for one in sentences if len(one) > 2]
        if sum(words) > 25 * len(words):
            long.append(f"{each.relative_to(DOCS.parent)}: {sum(words) / len(words):.1f} words a sentence")
    assert not long, "\n".join(long)
