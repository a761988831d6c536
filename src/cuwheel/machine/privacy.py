"""Keeps people out of profiles: no user names, host names or home folders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

# Home folders of other users in a path.
_HOMES = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\:;\s]+")
# Shorter names are words ("a", "pi", "dev") that stand in paths for other reasons.
_SHORTEST_NAME = 3
_NEUTRAL_NAMES = frozenset({"root", "user", "admin", "ubuntu", "debian", "runner", "localhost", "build"})


def scrub(value: T, *, home: str, names: Iterable[str]) -> T:
    """`value` with the home folder as `~` and every user or host name in `names` as `<name>`."""
    telling = [name for name in names if len(name) >= _SHORTEST_NAME and name.lower() not in _NEUTRAL_NAMES]
    words = (
        re.compile(r"(?<![A-Za-z0-9])(" + "|".join(map(re.escape, telling)) + r")(?![A-Za-z0-9])") if telling else None
    )
    own_home = re.compile(re.escape(home.rstrip("/\\")) + r"(?=[/\\:;\s]|$)") if len(home) > 1 else None

    def clean(text: str) -> str:
        if own_home:
            text = own_home.sub("~", text)
        text = _HOMES.sub(r"\1<name>", text)
        return words.sub("<name>", text) if words else text

    return codec.convert(each_string(codec.builtins(value), clean), type(value))


def each_string(data: object, clean: Callable[[str], str]) -> object:
    """A value of JSON, with all texts in it."""
    if isinstance(data, str):
        return clean(data)
    if isinstance(data, dict):
        return {key: each_string(item, clean) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [each_string(item, clean) for item in data]
    return data
