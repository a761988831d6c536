"""One table of verbs: what a row needs is there, and nothing is there without a row. A failure says what is missing."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from msgspec.structs import fields

import cuwheel
from cuwheel import api
from cuwheel.cli import frame
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.verbs import VERBS, Verb

_SRC = Path(cuwheel.__file__).parent
_ROWS = list(VERBS.values())
_FUNCTIONS = [each for verb in _ROWS for each in verb.functions]


def _typed(module: str) -> set[str]:
    """`module.name` of what type checkers see imported from the API."""
    tree = ast.parse((_SRC / module).read_text(encoding="utf-8"))
    found = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.level == 0]
    return {
        f"{each.module}.{name.name}".removeprefix("cuwheel.api.")
        for each in found
        if each.module and each.module.startswith("cuwheel.api")
        for name in each.names
    }


@pytest.mark.parametrize("verb", _ROWS, ids=VERBS)
def test_a_verb_has_its_command(verb: Verb) -> None:
    module = frame.verb_module(verb.name)
    for name in ("EXAMPLES", "add_arguments", "refuse_conflicts", "run"):
        assert hasattr(module, name), f"cli/cmd_{verb.name}.py has no {name}"


@pytest.mark.parametrize("verb", _ROWS, ids=VERBS)
def test_a_verb_has_its_function(verb: Verb) -> None:
    assert verb.functions[0].partition(".")[2] == verb.name
    assert callable(getattr(cuwheel, verb.name))
    for each in verb.functions:
        module, _, name = each.partition(".")
        assert callable(getattr(importlib.import_module(f"cuwheel.api.{module}"), name)), each


@pytest.mark.parametrize("verb", _ROWS, ids=VERBS)
def test_a_verb_has_its_answer_and_schema(verb: Verb) -> None:
    for each in verb.answers:
        module, _, name = each.partition(".")
        answer = getattr(importlib.import_module(f"cuwheel.report.{module}"), name)
        assert {each.name: each.default for each in fields(answer)}["schema"] == f"cuwheel.{module}/1"
        assert (SCHEMAS / f"{module}-1.json").is_file(), "./run schemas"


def test_no_command_is_without_a_row() -> None:
    there = {path.stem.removeprefix("cmd_") for path in (_SRC / "cli").glob("cmd_*.py")}
    assert there - VERBS.keys() == set(), "give it a row in verbs.py"


def test_type_checkers_see_the_functions_of_the_table() -> None:
    """What is imported when it is asked for must stand as imports too, or no type checker knows it."""
    assert _typed("api/__init__.py") ^ set(_FUNCTIONS) == set(), "the imports of api/__init__.py"
    assert _typed("__init__.py") ^ set(VERBS) == set(), "the imports of cuwheel/__init__.py"


def test_what_is_exported_is_the_table() -> None:
    assert set(api.__all__) ^ {each.partition(".")[2] for each in _FUNCTIONS} == set(), "__all__ of cuwheel.api"
    requests = [each.request.rpartition(".")[2] for each in _ROWS if each.request]
    assert set(cuwheel.__all__) ^ {"__version__", *requests, *VERBS} == set(), "__all__ of cuwheel"
    assert all(hasattr(cuwheel, each) for each in cuwheel.__all__)
