"""One table of verbs: what a row needs is there, and nothing is there without a row. A failure says what is missing."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import fields

import cuwheel
from cuwheel import errors
from cuwheel.building import settings, tables
from cuwheel.cli.common import HTML, LOCKED, REFINEMENT
from cuwheel.cli.options import Command, flat
from cuwheel.report import answer, schemas
from cuwheel_core import errors as core_errors
from cuwheel_core.errors import CuwheelError
from tests.fixtures.verbs import CALLED, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.support.verbs import Verb, Word
    from tests.fixtures.verbs import Called

_SRC = Path(cuwheel.__file__).parent
_FUNCTIONS = [(word, each) for word, verb in ROWS.values() for each in verb.functions]
_OF_EACH = pytest.mark.parametrize(("word", "verb"), ROWS.values(), ids=ROWS)
_CALLED = pytest.mark.parametrize("called", CALLED.values(), ids=CALLED)


def _function(word: Word, named: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(
        importlib.import_module(word.module_of_function(named)), named.rpartition(".")[2]
    )
    return found


@_CALLED
def test_a_verb_has_its_command(called: Called) -> None:
    assert isinstance(called.command, Command)
    assert f"cuwheel {' '.join(called.words)} " in f"{called.command.examples} "


@_OF_EACH
def test_a_verb_has_its_function(word: Word, verb: Verb) -> None:
    assert verb.functions[0].rpartition(".")[2] == verb.name
    assert callable(getattr(importlib.import_module(word.package), verb.name))
    for each in verb.functions:
        assert callable(_function(word, each)), each


@_OF_EACH
def test_a_verb_has_its_answer_and_schema(word: Word, verb: Verb) -> None:
    for each in verb.answers:
        kind = getattr(importlib.import_module(word.module_of_answer(each)), each.rpartition(".")[2])
        schema = {each.name: each.default for each in fields(kind)}["schema"]
        assert schema.startswith("cuwheel."), schema
        assert schema.endswith("/1"), schema
        name = schema.removeprefix("cuwheel.").removesuffix("/1")
        assert (schemas.schema_folder(word) / f"{name}-1.json").is_file(), "./run schemas"
        assert callable(answer.document_maker(kind))


def test_no_command_is_without_a_row() -> None:
    modules = [importlib.import_module(f"cuwheel.cli.{path.stem}") for path in (_SRC / "cli").glob("cmd_*.py")]
    there = {name.lower() for module in modules for name, each in vars(module).items() if isinstance(each, Command)}
    assert there == {each.name for each in CALLED.values() if each.word.package == "cuwheel"}, (
        "give it a row in verbs.py"
    )


def test_every_row_is_in_help() -> None:
    assert set(ROWS) - {each.name for each in CALLED.values()} == set()


@pytest.mark.parametrize(
    "word", {word.package: word for word, _ in ROWS.values()}.values(), ids=lambda each: each.package
)
def test_what_a_package_exports_is_its_table(word: Word) -> None:
    package = importlib.import_module(word.package)
    assert set(package.__all__) ^ {"__version__", *word.public_names()} == set()
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", cuwheel.__all__)
def test_a_public_name_is_there_and_no_module(name: str) -> None:
    """A room of the same name would take its place as soon as somebody imports the room."""
    assert not inspect.ismodule(getattr(cuwheel, name))
    assert not {name, f"{name}.py"} & {each.name for each in _SRC.iterdir()}  # in these letters, on any system


def test_every_kind_of_error_is_public() -> None:
    kinds = {
        name
        for name, each in {**vars(core_errors), **vars(errors)}.items()
        if inspect.isclass(each) and issubclass(each, CuwheelError)
    }
    assert kinds - set(cuwheel.__all__) == set()


def test_every_type_of_a_public_function_is_public() -> None:
    """Whoever calls one can name what it takes and what it gives, without knowing our modules."""
    literals = {"ServiceKind", "Shell", "Service"}  # the words themselves are written
    plain = {"bool", "float", "int", "str", "None", "BinaryIO", "Mapping", "Sequence", "Path", "Literal"}
    known = {*(name for word, _ in ROWS.values() for name in word.public_names()), *literals, *plain}
    for word, each in _FUNCTIONS:
        signature = inspect.signature(_function(word, each))
        said = [signature.return_annotation, *(one.annotation for one in signature.parameters.values())]
        words = {word for one in said for word in re.findall(r"[A-Za-z]\w*", re.sub(r"Literal\[.*?\]", "", str(one)))}
        assert words - known == set(), each


def test_machines_are_called_on_or_machines() -> None:
    """Also no dictionary of anything, and no wish."""
    for word, each in _FUNCTIONS:
        parameters = inspect.signature(_function(word, each)).parameters.values()
        named = {one.name for one in parameters if re.search(r"\bMachine(s|Profile)?\b", str(one.annotation))}
        assert named <= {"on", "machines", *(["compile"] if each == "wheels.graft" else [])}, each
        assert {str(one.annotation) for one in parameters if one.name in named} <= {"Machines"}, each
        assert not {one.name for one in parameters} & {"wish", "gpu", "for_", "machine", "fleet"}, each
        assert [one for one in parameters if re.search(r"\bobject\b|\bAny\b", str(one.annotation))] == [], each


def test_settings_of_a_build_are_those_of_the_configuration() -> None:
    """Also to a type checker, table by table."""
    stub = ast.parse(Path(settings.__file__).with_suffix(".pyi").read_text())
    classes = {each.name: ast.unparse(each) for each in stub.body if isinstance(each, ast.ClassDef)}
    assert classes.keys() == tables.SETTINGS.keys()
    for name, table in tables.SETTINGS.items():
        keys = tables.setting_names(table)
        assert re.findall(r"^    (\w+):", classes[name], re.MULTILINE) == list(keys)
        assert set(getattr(settings, name).__annotations__) == set(keys)
    assert cuwheel.BuildSettings(merge=True) == {"merge": True}
    assert cuwheel.BuildRequest().settings == {}


def test_machines_of_a_build_may_be_files() -> None:
    given = cuwheel.BuildRequest(machines=["h100", Path("fleet.toml")], settings={"merge": True})
    assert given.overrides == {"merge": True, "for_": ("h100", "fleet.toml")}


@_CALLED
def test_every_option_is_used(called: Called) -> None:
    """It fills a field of the request, or is asked for by its name: one that does neither would be taken in silence."""
    named = called.word.rows[called.name].request if called.name in called.word.rows else ""
    known: set[str] = set()
    if named:
        request = getattr(importlib.import_module(called.word.module_of_request(named)), named.rpartition(".")[2])
        known = {each.name for each in dataclasses.fields(request)}
    known |= {row.dest for row in (*REFINEMENT.rows, HTML, LOCKED)}
    text = Path(str(inspect.getsourcefile(called.command.run))).read_text(encoding="utf-8")
    rows = [row.dest.split(".")[0] for row in flat(called.command.options)]
    assert [each for each in rows if each not in known and f"args.{each}" not in text] == []


def test_machines_are_said_in_two_words() -> None:
    """`on` where something is judged, `machines` where something is made; a value of their kind has no other name."""
    for word, each in _FUNCTIONS:
        parameters = inspect.signature(_function(word, each)).parameters.values()
        taking = {one.name for one in parameters if re.search(r"\bMachine\b", str(one.annotation))}
        assert taking <= {"on", "machines"}, each
        named = {one.name for one in parameters}
        assert not named & {"for_", "fleet", "gpus", "wish", "machine", "targets_for"}, each
        loose = [one.name for one in parameters if re.search(r"\b(dict|Any)\b", str(one.annotation))]
        assert loose == [], each
