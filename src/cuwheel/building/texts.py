"""Texts with `{placeholders}`, as a configuration has them."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.spellings import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES = (
    *(f"archs.{each}" for each in table.NAMES),
    "cuda",
    "cuda_digits",
    "toolkit",
    "nvcc",
    "host_compiler",
    "python",
    "source",
    "jobs",
)


def problems(text: str) -> Iterator[str]:
    """What is wrong with the placeholders of a text."""
    try:
        names = list(_names(text))
    except ValueError as error:
        yield f"{text!r}: {error}; a brace is written twice, {{{{ or }}}}"
        return
    for name in names:
        if name not in NAMES:
            yield f"{text!r}: there is no {{{name}}}; there are {', '.join(NAMES)}"


def _names(text: str) -> Iterator[str]:
    for _, name, form, conversion in string.Formatter().parse(text):
        if name is not None:
            yield name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")


def fill(text: str, values: Mapping[str, str | None]) -> str:
    """A text without placeholders. A value of None is one that cannot be said for this job."""
    said = []
    for literal, name, _, _ in string.Formatter().parse(text):
        said.append(literal)
        if name is None:
            continue
        value = values[name]
        if value is None:
            raise UsageError(
                f"{text!r}: {{{name}}} cannot be said for this job",
                hint="cuwheel plan says why, and what comes nearest",
            )
        said.append(value)
    return "".join(said)
