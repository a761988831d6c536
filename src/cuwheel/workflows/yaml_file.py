"""YAML that somebody wrote: read safely, and small."""

from __future__ import annotations

from typing import Any

from cuwheel import extras
from cuwheel.errors import MalformedError

LARGEST = 1 << 20
_DEEPEST = 50


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
    if not isinstance(found, dict) or _is_endless(found):
        raise MalformedError(name, "is not a workflow: it is not a mapping, or one that contains itself")
    return found


def _is_endless(value: object, above: tuple[int, ...] = ()) -> bool:
    """Anchors can make a value part of itself."""
    if not isinstance(value, dict | list):
        return False
    if id(value) in above or len(above) > _DEEPEST:
        return True
    inside = value.values() if isinstance(value, dict) else value
    return any(_is_endless(each, (*above, id(value))) for each in inside)
