from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


def _generated() -> dict[str, str]:
    pages: dict[str, str] = generator().pages()
    return pages


@pytest.mark.parametrize(("name", "text"), _generated().items())
def test_generated_pages_say_what_the_code_says(name: str, text: str) -> None:
    assert (ROOT / "docs" / name).read_text() == text, "run ./run docs"


@pytest.mark.parametrize("folder", ["rules", "causes"])
def test_no_page_is_left_of_what_is_gone(folder: str) -> None:
    there = {f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob("*.md")}
    assert there == {name for name in _generated() if name.startswith(f"{folder}/")}


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ["architecture.md", "contributing.md", "design.md"])
def test_modules_that_a_page_names_exist(page: str) -> None:
    """A page that sends its reader to a module that was renamed is worse than none."""
    there = {path.name for folder in ("src", "tests", "docs", "facts") for path in (ROOT / folder).rglob("*.py")}
    named = re.findall(r"`[\w./]*?(\w+\.py)`", (ROOT / "docs" / page).read_text())
    assert set(named) - there == set()


def test_steps_that_the_architecture_draws_exist() -> None:
    """`delivery/candidates`: a module or a folder of a room."""
    house = ROOT / "src" / "cuwheel"
    drawn = re.findall(r"\b([a-z_]+/[a-z_]*[a-z])\b(?!/|\.)", (ROOT / "docs" / "architecture.md").read_text())
    steps = [each for each in drawn if (house / each.partition("/")[0]).is_dir()]
    assert [each for each in steps if not (house / each).is_dir() and not (house / f"{each}.py").is_file()] == []
    assert len(steps) > 10
