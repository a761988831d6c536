"""YAML that somebody wrote: read safely, and small."""

from __future__ import annotations

from typing import Any

from cuwheel.errors import MalformedError
from cuwheel.support import extras

LARGEST = 1 << 18
_DEEPEST = 50
_MOST = 100_000  # values


def load(text: str, name: str) -> dict[str, Any]:
    """A mapping; anything else is no workflow. Anchors may not repeat themselves into something huge."""
    extras.require("reading a workflow", modules=("ruamel.yaml",), extra="ci")
    from ruamel.yaml import YAML  # noqa: PLC0415 - of an extra
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    if len(text) > LARGEST:
        raise MalformedError(name, f"is too large: it has more than {LARGEST:,} characters")
    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MalformedError(name, f"is not valid YAML: {first}") from error
    if not isinstance(found, dict):
        raise MalformedError(name, "is not a workflow: it is not a mapping")
    if _values(found, (), {}) > _MOST:
        raise MalformedError(
            name, f"is not a workflow: its anchors make it contain itself, or more than {_MOST:,} values"
        )
    return found


def _values(value: object, above: tuple[int, ...], known: dict[int, int]) -> int:
    """How many are in it, what anchors repeat counted each time. One that is part of itself has too many."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in above or len(above) > _DEEPEST:
        return _MOST + 1
    if id(value) not in known:
        inside = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values(each, (*above, id(value)), known) for each in inside)
    return known[id(value)]
