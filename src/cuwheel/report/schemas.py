"""Writes the JSON schemas that ship in the package: `./run schemas`."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields

from cuwheel.building import config
from cuwheel.device_code.wheel_facts import WheelFacts
from cuwheel.machine.profile import MachineProfile
from cuwheel.report.answer import SCHEMAS, Error
from cuwheel.support import codec
from cuwheel.support.extensions import find_word
from cuwheel.support.verbs import Word, own_word


def all_schemas() -> dict[str, str]:
    """Of cuwheel's own package: file name → text."""
    # What `doctor --save` writes, and what stands beside the wheels of an index.
    types: dict[str, type] = {
        "machine": MachineProfile,
        "facts": WheelFacts,
        "error": Error,
        **_answers(own_word("check")),
    }
    # The configuration is for editors, too.
    return _texts({**{name: codec.schema(type_) for name, type_ in types.items()}, "config": config.schema()})


def schemas_of(word: Word) -> dict[str, str]:
    """Of another distribution's verbs."""
    return _texts({name: codec.schema(type_) for name, type_ in _answers(word).items()})


def _answers(word: Word) -> dict[str, type]:
    found: dict[str, type] = {}
    for named in (each for verb in word.verbs for each in verb.answers):
        type_: type = getattr(import_module(word.module_of_answer(named)), named.rpartition(".")[2])
        schema = next(each.default for each in fields(type_) if each.name == "schema")
        found[schema.removeprefix("cuwheel.").removesuffix("/1")] = type_
    return found


def _texts(schemas: dict[str, Any]) -> dict[str, str]:
    texts = {name: msgspec.json.format(codec.encode(_tidy(each)), indent=2) for name, each in schemas.items()}
    return {f"{name}-1.json": text.decode() + "\n" for name, text in texts.items()}


def schema_folder(word: Word) -> Path:
    return Path(str(import_module(word.package).__file__)).parent / "schemas"


def _tidy(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Docstrings as Python 3.13 has them: before it, their indentation is part of them."""
    if isinstance(schema, dict):
        return {
            key: cleandoc(value) if key == "description" and isinstance(value, str) else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(each) for each in schema] if isinstance(schema, list) else schema


def main(words: list[str]) -> int:
    """Writes cuwheel's own, and those of the other distributions' verbs that are named."""
    written = {SCHEMAS / file: text for file, text in all_schemas().items()}
    for name in words:
        if word := find_word(name):
            written |= {schema_folder(word) / file: text for file, text in schemas_of(word).items()}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
