"""What a verb answers: a frozen value with a versioned schema. JSON is exactly this value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from cuwheel.support import codec, masking

SCHEMAS = Path(__file__).parent.parent / "schemas"

T = TypeVar("T")


class Answer(Protocol):
    @property
    def schema(self) -> str: ...

    @property
    def succeeded(self) -> bool:
        """False where the answer is no: the exit status is then 1."""


def to_json(answer: object) -> str:
    return msgspec.json.format(codec.encode_any(shown(answer)), indent=2).decode() + "\n"


def shown(answer: T) -> T:
    """As it leaves us, be it on a terminal or in a file: commands, addresses and messages in it may hold secrets.

    What a program printed is masked where it is kept, also by its letters. Signatures and public keys look like those.
    """
    return masking.within(answer, masking.hiding(os.environ, random=False))


def of_fields(answer: type[T], found: Any) -> T:  # noqa: ANN401 - a stage's value
    """What a stage found, as the answer that has the same fields and a schema."""
    return answer(**{name: getattr(found, name) for name in found.__struct_fields__})


def json_schema(answer_type: type) -> str:
    """The JSON Schema that ships in `schemas/`; a test keeps file and type together."""
    return schema_text(codec.schema(answer_type))


def schema_text(schema: dict[str, Any]) -> str:
    return msgspec.json.format(codec.encode(_tidy(schema)), indent=2).decode() + "\n"


def _tidy(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Docstrings as Python 3.13 has them: before it, their indentation is part of them."""
    from inspect import cleandoc  # noqa: PLC0415 - for the schemas alone

    if isinstance(schema, dict):
        return {
            key: cleandoc(value) if key == "description" and isinstance(value, str) else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(each) for each in schema] if isinstance(schema, list) else schema
