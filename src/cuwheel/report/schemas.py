"""Writes the JSON schemas that ship in the package: `./run schemas`."""

from __future__ import annotations

import importlib

from cuwheel.building import config
from cuwheel.machine.profile import MachineProfile
from cuwheel.report.answer import SCHEMAS, json_schema, schema_text

# Verb → the class of its answer, in report/<verb>.py. `machine` is the profile that `doctor --save` writes.
ANSWERS = {
    "build": "Build",
    "check": "Check",
    "compare": "Compare",
    "doctor": "Doctor",
    "explain": "Explain",
    "gpus": "Gpus",
    "inspect": "Inspect",
    "kernels": "Kernels",
    "matrix": "Matrix",
    "plan": "Plan",
    "proof": "Proof",
    "repair": "Repair",
    "record": "Recorded",
    "replay": "Replay",
    "slim": "Slim",
    "toolchain": "Toolchain",
    "toolkits": "Toolkits",
    "verify": "Verify",
}


def all_schemas() -> dict[str, str]:
    """File name → text."""
    types: dict[str, type] = {"machine": MachineProfile}
    for verb, name in ANSWERS.items():
        types[verb] = getattr(importlib.import_module(f"cuwheel.report.{verb}"), name)
    texts = {name: json_schema(type_) for name, type_ in types.items()}
    texts["config"] = schema_text(config.schema())  # of cuwheel.toml, for editors
    return {f"{name}-1.json": text for name, text in texts.items()}


if __name__ == "__main__":
    for file, text in all_schemas().items():
        (SCHEMAS / file).write_text(text)
