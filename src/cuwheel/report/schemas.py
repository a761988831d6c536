"""Writes the JSON schemas that ship in the package: `./run schemas`."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import msgspec
from msgspec.structs import fields

from cuwheel.building import config
from cuwheel.device_code.wheel_facts import WheelFacts
from cuwheel.machine.profile import MachineProfile
from cuwheel.report.answer import SCHEMAS, Error, answer_type
from cuwheel.support import codec
from cuwheel.support.verbs import VERBS


def all_schemas() -> dict[str, str]:
    """File name → text."""
    # What `doctor --save` writes, and what stands beside the wheels of an index.
    types: dict[str, type] = {"machine": MachineProfile, "facts": WheelFacts, "error": Error}
    for answer in (each for verb in VERBS.values() for each in verb.answers):
        found = answer_type(answer)
        schema = next(each.default for each in fields(found) if each.name == "schema")
        types[schema.removeprefix("cuwheel.").removesuffix("/1")] = found
    schemas = {name: codec.schema(type_) for name, type_ in types.items()}
    schemas["config"] = config.schema()  # of cuwheel.toml, for editors
    texts = {name: msgspec.json.format(codec.encode(_tidy(each)), indent=2) for name, each in schemas.items()}
    return {f"{name}-1.json": text.decode() + "\n" for name, text in texts.items()}


def _tidy(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Docstrings as Python 3.13 has them: before it, their indentation is part of them."""
    if isinstance(schema, dict):
        return {
            key: cleandoc(value) if key == "description" and isinstance(value, str) else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(each) for each in schema] if isinstance(schema, list) else schema


if __name__ == "__main__":
    for file, text in all_schemas().items():
        (SCHEMAS / file).write_text(text, encoding="utf-8")
