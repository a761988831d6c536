"""Verbs of other distributions, which the entry points of the group `cuwheel.verbs` name.

They are looked up for a word that is no verb of cuwheel, for `--help` and for completion: `importlib.metadata` alone
takes longer to import than `cuwheel --version` may.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cuwheel.support import log
from cuwheel.support.verbs import SHOWN, Word
from cuwheel_core.errors import CuwheelError, MalformedError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "cuwheel.verbs"


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """By their word. None takes the place of a verb of cuwheel."""
    from importlib import metadata  # noqa: PLC0415 - see above

    found = sorted(metadata.entry_points(group=GROUP), key=lambda each: each.value, reverse=True)
    return {each.name: each for each in found if each.name not in SHOWN}


def words() -> tuple[str, ...]:
    return tuple(sorted(_entry_points()))


@cache
def find_word(name: str) -> Word | None:
    """The verb of another distribution; one that cannot be loaded is an error that names its distribution."""
    if name not in _entry_points():
        return None
    entry = _entry_points()[name]
    try:
        found = entry.load()
    except Exception as error:
        raise _unusable(entry, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Word):
        raise _unusable(entry, f"{entry.value} is no cuwheel.support.verbs.Word")
    return found


def _unusable(entry: EntryPoint, problem: str) -> MalformedError:
    name = entry.dist.name if entry.dist else entry.value
    return MalformedError(
        name, f"its verb `cuwheel {entry.name}` cannot be loaded: {problem}", f"pip install --upgrade {name}"
    )


def all_words() -> dict[str, Word]:
    """Those that can be loaded. One that cannot be is warned of: help must come, whatever else is installed."""
    found: dict[str, Word] = {}
    for name in words():
        try:
            word = find_word(name)
        except CuwheelError as error:
            log.warning("%s", error.message)
            continue
        if word:
            found[name] = word
    return found
