from __future__ import annotations

import difflib
import importlib.util
import itertools
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.verbs import CALLED, WORDS

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


@cache
def generator() -> ModuleType:
    """docs/generate.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # msgspec looks there for the types of fields
    spec.loader.exec_module(module)
    return module


@cache
def _generated() -> dict[str, str]:
    pages: dict[str, str] = generator().pages()
    return pages


def test_generated_pages_say_what_the_code_says() -> None:
    there = {name: (ROOT / "docs" / name) for name in _generated()}
    missing = [name for name, path in there.items() if not path.exists()]
    outdated = [
        "\n".join(itertools.islice(difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), name), 20))
        for (name, path), text in zip(there.items(), _generated().values(), strict=True)
        if path.exists() and path.read_text() != text
    ]
    assert not missing + outdated, "\n".join(["run ./run docs", *missing, *outdated])


@pytest.mark.parametrize("folder", ["reference/rules", "reference/causes"])
def test_no_page_is_left_of_what_is_gone(folder: str) -> None:
    there = {f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md")}
    assert there == {name for name in _generated() if name.startswith(f"{folder}/")}


def test_links_between_pages_lead_somewhere() -> None:
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
        for target in re.findall(r"\]\(([^)#]+)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not lost, "\n".join(lost)


def test_what_every_verb_trusts_writes_runs_and_sends_is_said() -> None:
    """A row of SECURITY.md's table for each verb, with all of its cells. Commands of one word may share one."""
    rows = re.findall(r"^\| `([a-z ]+)` \|(.+)\|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    said = {verb: [cell.strip() for cell in cells.split(" | ")] for verb, cells in rows}
    assert [each for each in CALLED if each not in said and each.split()[0] not in said] == []
    assert [verb for verb in said if verb not in CALLED and verb not in WORDS] == []
    assert [verb for verb, cells in said.items() if len(cells) != len(("trusts", "writes", "runs", "sends"))] == []
    assert [verb for verb, cells in said.items() if not all(cells)] == []


@pytest.mark.parametrize("page", ["why/architecture.md", "why/contributing.md", "why/design.md"])
def test_modules_that_a_page_names_exist(page: str) -> None:
    """A page that sends its reader to a module that was renamed is worse than none."""
    there = {
        path.name
        for folder in ("src", "core", "lab", "tests", "docs", "facts")
        for path in (ROOT / folder).rglob("*.py")
    }
    named = re.findall(r"`[\w./]*?(\w+\.py)`", (ROOT / "docs" / page).read_text())
    assert set(named) - there == set()


def test_steps_that_the_architecture_draws_exist() -> None:
    """`delivery/candidates`: a module or a folder of a room."""
    house = ROOT / "src" / "cuwheel"
    drawn = re.findall(r"\b([a-z_]+/[a-z_]*[a-z])\b(?!/|\.)", (ROOT / "docs" / "why" / "architecture.md").read_text())
    steps = [each for each in drawn if (house / each.partition("/")[0]).is_dir()]
    assert [each for each in steps if not (house / each).is_dir() and not (house / f"{each}.py").is_file()] == []
    assert len(steps) > 10


def test_the_guide_says_what_a_partial_verdict_means() -> None:
    """In the words that `check` itself uses."""
    guide = " ".join((ROOT / "docs" / "howto" / "check.md").read_text().split())
    check = guide.partition("# check")[2]
    assert "`main` is the verdict of" in check
    assert "`summary` says" in check
    source = (ROOT / "src/cuwheel/verdicts/judge.py").read_text()
    for words in (
        "starts, but its main part fails: ",
        "runs, but not all of its kernels: ",
        "an optional part does not",
    ):
        assert words.strip() in check
        assert words in source
