"""Axes of a file that a person wrote, each with its named values: every combination of them, less what is excluded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from cuwheel.support import quoting
from cuwheel_core.support.wording import file_name

Value = TypeVar("Value")
MAX_COMBINATIONS = 1000
_PLACE = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"\w[\w.+-]*")


def read_axes(
    data: Mapping[str, Any],
    where: str,
    problems: list[str],
    value_of: Callable[[str, Any, str], Value | None],
) -> Iterator[tuple[str, dict[str, Value]]]:
    """Each axis with its values by name. `value_of`: from axis, what stands there and where that is, to a value."""
    for axis, values in data.items():
        place = f"{where}.axes.{axis}"
        if not _NAME.fullmatch(axis):
            problems.append(f"{place}: a name may only contain letters, digits and _")
        given = _named(values) if isinstance(values, list) else values
        if not isinstance(given, dict) or not given:
            problems.append(f"{place}: a list of values, or a table of names and values, with at least one")
            continue
        if isinstance(values, list) and len(given) < len(values):
            problems.append(f"{place}: a value appears twice")
        made = {name: value_of(axis, each, f"{place}.{name}") for name, each in given.items()}
        yield axis, {name: value for name, value in made.items() if value is not None}


def _named(values: list[Any]) -> dict[str, Any]:
    """Names the values by themselves; folders by their last part, where that tells them apart."""
    short = [file_name(each) if isinstance(each, str) else str(each) for each in values]
    names = short if len(set(short)) == len(short) and "" not in short else map(str, values)
    return dict(zip(names, values, strict=True))


def word_problems(command: str, words: Mapping[str, Mapping[str, str]], where: str) -> Iterator[str]:
    """Compares the places `{axis}` of a command with the words of its axes: axis → name of a value → its words."""
    places = set(_PLACE.findall(command))
    yield from (f"{where}.command: unknown axis '{name}'" for name in sorted(places - words.keys()))
    for axis, values in words.items():
        if axis not in places and any(values.values()):
            yield f"{where}.command: it does not say where the words of '{axis}' go: {{{axis}}}"
    texts = {"command": command}
    texts |= {f"axes.{axis}.{name}": text for axis, values in words.items() for name, text in values.items()}
    yield from (f"{where}.{place}: {problem}" for place, text in texts.items() if (problem := unsplit(text)))
    longest = {axis: max(map(len, values.values()), default=0) for axis, values in words.items()}
    filled_in = len(command) + sum(longest.get(each, 0) for each in _PLACE.findall(command))
    if len(command) <= quoting.LONGEST_COMMAND < filled_in:
        yield f"{where}.command: longer than {quoting.LONGEST_COMMAND:,} characters with the words of its axes"


def unsplit(text: str) -> str:
    """Why a shell would not take it; empty where it would."""
    try:
        quoting.split(text)
    except ValueError as error:
        return str(error).lower()
    return ""


def filled(command: str, words: Mapping[str, str]) -> tuple[str, ...]:
    """A command with the words of each axis in its place."""
    return quoting.split(_PLACE.sub(lambda match: words.get(match[1], ""), command))


def unknown(
    kind: str, rows: Sequence[Mapping[str, Any]], axes: Mapping[str, Mapping[str, object]], where: str
) -> Iterator[str]:
    """What rows that include or exclude combinations name, and there is not."""
    for index, row in enumerate(rows):
        place = f"{where}.{kind}[{index}]"
        if not row:
            yield f"{place}: it names no axis"
        for axis, wanted in row.items():
            if axis not in axes:
                yield f"{place}: unknown axis '{axis}'"
            else:
                missing = [name for name in _listed(wanted) if not isinstance(name, str) or name not in axes[axis]]
                yield from (f"{place}: '{axis}' has no value {name!r}" for name in missing)


def combinations(
    axes: Mapping[str, Mapping[str, object]],
    include: Iterable[Mapping[str, str]],
    exclude: Sequence[Mapping[str, Any]],
    where: str,
    problems: list[str],
) -> list[dict[str, str]]:
    """Axis → the name of its value, in the order of the file."""
    count = prod(len(values) for values in axes.values())
    if count > MAX_COMBINATIONS:
        problems.append(f"{where}.axes: {count} combinations, but at most {MAX_COMBINATIONS} are allowed")
        return []
    every = (dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values()))
    chosen = [choices for choices in every if not any(fits(row, choices) for row in exclude)]
    return chosen + [dict(row) for row in include if row not in chosen]


def fits(row: Mapping[str, Any], choices: Mapping[str, str]) -> bool:
    return all(choices.get(axis) in _listed(names) for axis, names in row.items())


def _listed(names: Any) -> list[Any]:  # noqa: ANN401 - one name, or a list of them, as a person wrote it
    return names if isinstance(names, list) else [names]
