"""What a verb answers: a frozen value with a versioned schema. JSON is exactly this value."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

SCHEMAS = Path(__file__).parent.parent / "schemas"


class Answer(Protocol):
    @property
    def schema(self) -> str: ...

    @property
    def succeeded(self) -> bool:
        """False where the answer is no: the exit status is then 1."""


def to_json(answer: object) -> str:
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"


def json_schema(answer_type: type) -> str:
    """The JSON Schema that ships in `schemas/`; a test keeps file and type together."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(answer_type)), indent=2).decode() + "\n"
