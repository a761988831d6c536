"""One table of verbs: what a row needs is there, and nothing is there without a row. A failure says what is missing."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import fields

import cuwheel
from cuwheel import api, errors
from cuwheel.building import request
from cuwheel.building.request import BuildSettings
from cuwheel.building.tables import GateTable, GuardTable, RepairTable, Table
from cuwheel.cli.common import HTML, LOCKED, REFINEMENT
from cuwheel.cli.options import Command, command_of, flat
from cuwheel.errors import CuwheelError
from cuwheel.report import answer
from cuwheel.report.answer import SCHEMAS, answer_type
from cuwheel.support.verbs import FAMILIES, SHOWN, VERBS, Verb, public_names
from cuwheel.verdicts.planning.plan import PlanOptions

if TYPE_CHECKING:
    from msgspec import Struct

_SRC = Path(cuwheel.__file__).parent
_ROWS = list(VERBS.values())
_FUNCTIONS = [each for verb in _ROWS for each in verb.functions]


@pytest.mark.parametrize("verb", _ROWS, ids=VERBS)
def test_a_verb_has_its_command(verb: Verb) -> None:
    command = command_of(verb.name)
    assert isinstance(command, Command)
    assert "cuwheel " in command.examples


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
        schema = {each.name: each.default for each in fields(answer_type(each))}["schema"]
        assert schema.startswith("cuwheel."), schema
        assert schema.endswith("/1"), schema
        name = schema.removeprefix("cuwheel.").removesuffix("/1")
        assert (SCHEMAS / f"{name}-1.json").is_file(), "./run schemas"
        assert callable(answer.document_maker(schema))


def test_no_command_is_without_a_row() -> None:
    modules = [importlib.import_module(f"cuwheel.cli.{path.stem}") for path in (_SRC / "cli").glob("cmd_*.py")]
    there = {name.lower() for module in modules for name, each in vars(module).items() if isinstance(each, Command)}
    families = {command for family in FAMILIES.values() for command in family.commands.values()}
    assert there == (VERBS.keys() | families) - {"kernels", "compare"}, "give it a row in verbs.py"


def test_every_verb_is_in_help_or_has_a_new_spelling() -> None:
    families = {command for family in FAMILIES.values() for command in family.commands.values()}
    assert VERBS.keys() - SHOWN.keys() - families == {"kernels", "compare"}  # of inspect: --kernels, --against


def test_what_is_exported_is_the_table() -> None:
    assert set(api.__all__) ^ {each.partition(".")[2] for each in _FUNCTIONS} == set(), "__all__ of cuwheel.api"
    assert set(cuwheel.__all__) ^ {"__version__", *public_names()} == set(), "__all__ of cuwheel"
    assert set(cuwheel.__all__) <= set(dir(cuwheel))


@pytest.mark.parametrize("name", cuwheel.__all__)
def test_a_public_name_is_there_and_no_module(name: str) -> None:
    """A room of the same name would take its place as soon as somebody imports the room."""
    assert not inspect.ismodule(getattr(cuwheel, name))
    assert not {name, f"{name}.py"} & {each.name for each in _SRC.iterdir()}  # in these letters, on any system


def test_every_kind_of_error_is_public() -> None:
    kinds = {name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, CuwheelError)}
    assert kinds - set(cuwheel.__all__) == set()


def test_every_type_of_a_public_function_is_public() -> None:
    """Whoever calls one can name what it takes and what it gives, without knowing our modules."""
    literals = {"ServiceKind", "Shell", "Service"}  # the words themselves are written
    plain = {"bool", "float", "int", "str", "None", "BinaryIO", "Mapping", "Sequence", "Path", "Literal"}
    known = {*cuwheel.__all__, *literals, *plain}
    for each in _FUNCTIONS:
        signature = inspect.signature(getattr(api, each.partition(".")[2]))
        said = [signature.return_annotation, *(one.annotation for one in signature.parameters.values())]
        words = {word for one in said for word in re.findall(r"[A-Za-z]\w*", re.sub(r"Literal\[.*?\]", "", str(one)))}
        assert words - known == set(), each


def test_machines_are_called_on_or_machines() -> None:
    """Also no dictionary of anything, and no wish."""
    for each in _FUNCTIONS:
        parameters = inspect.signature(getattr(api, each.partition(".")[2])).parameters.values()
        named = {one.name for one in parameters if re.search(r"\b(Machine|MachineProfile)\b", str(one.annotation))}
        assert named <= {"on", "machines"}, each
        assert not {one.name for one in parameters} & {"wish", "gpu", "for_", "machine", "fleet"}, each
        assert [one for one in parameters if re.search(r"\bobject\b|\bAny\b", str(one.annotation))] == [], each


def test_settings_of_a_build_are_those_of_the_configuration() -> None:
    """The typed names of `settings`, table by table."""
    elsewhere = {"for_", "python", "verify", "ci", "cache_limit"}  # fields of the request, or of no build
    below: dict[type[Struct], type] = {
        Table: BuildSettings,
        PlanOptions: request.PlanSettings,
        GateTable: request.GateSettings,
        RepairTable: request.RepairSettings,
        GuardTable: request.GuardSettings,
    }
    for table, settings in below.items():
        assert {each.name for each in fields(table)} - elsewhere == set(settings.__annotations__), table
    assert cuwheel.BuildRequest().settings == {}


def test_machines_of_a_build_may_be_files() -> None:
    given = cuwheel.BuildRequest(machines=["h100", Path("fleet.toml")], settings={"merge": True})
    assert given.overrides == {"merge": True, "for_": ("h100", "fleet.toml")}


def test_a_function_that_was_renamed_is_found_by_its_old_name() -> None:
    assert api.toolchains is api.toolchain_list


@pytest.mark.parametrize("verb", _ROWS, ids=VERBS)
def test_every_option_is_used(verb: Verb) -> None:
    """It fills a field of the request, or is asked for by its name: one that does neither would be taken in silence."""
    command = command_of(verb.name)
    room, _, name = verb.request.rpartition(".")
    request = getattr(importlib.import_module(f"cuwheel.{room}.request"), name) if name else None
    known = {each.name for each in dataclasses.fields(request)} if request else set()
    known |= {row.dest for row in (*REFINEMENT.rows, HTML, LOCKED)}
    text = Path(str(inspect.getsourcefile(command.run))).read_text(encoding="utf-8")
    rows = [row.dest.split(".")[0] for row in flat(command.options)]
    assert [each for each in rows if each not in known and f"args.{each}" not in text] == []


def test_machines_are_said_in_two_words() -> None:
    """`on` where something is judged, `machines` where something is made; a value of their kind has no other name."""
    for each in _FUNCTIONS:
        parameters = inspect.signature(getattr(api, each.partition(".")[2])).parameters.values()
        taking = {one.name for one in parameters if re.search(r"\bMachine\b", str(one.annotation))}
        assert taking <= {"on", "machines"}, each
        named = {one.name for one in parameters}
        assert not named & {"for_", "fleet", "gpus", "wish", "machine", "targets_for"}, each
        loose = [one.name for one in parameters if re.search(r"\b(dict|Any)\b", str(one.annotation))]
        assert loose == [], each
