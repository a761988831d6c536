"""Writes the JSON schemas that ship in the package: `./run schemas`."""

from __future__ import annotations

from msgspec.structs import fields

from cuwheel.building import config
from cuwheel.device_code.wheel_facts import WheelFacts
from cuwheel.machine.profile import MachineProfile
from cuwheel.report.answer import SCHEMAS, answer_type, json_schema, schema_text
from cuwheel.support.verbs import VERBS


def all_schemas() -> dict[str, str]:
    """File name → text."""
    # What `doctor --save` writes, and what stands beside the wheels of an index.
    types: dict[str, type] = {"machine": MachineProfile, "facts": WheelFacts}
    for answer in (each for verb in VERBS.values() for each in verb.answers):
        found = answer_type(answer)
        schema = next(each.default for each in fields(found) if each.name == "schema")
        types[schema.removeprefix("cuwheel.").removesuffix("/1")] = found
    texts = {name: json_schema(type_) for name, type_ in types.items()}
    texts["config"] = schema_text(config.schema())  # of cuwheel.toml, for editors
    return {f"{name}-1.json": text for name, text in texts.items()}


if __name__ == "__main__":
    for file, text in all_schemas().items():
        (SCHEMAS / file).write_text(text, encoding="utf-8")
