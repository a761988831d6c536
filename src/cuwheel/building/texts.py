"""Texts with `{placeholders}`, as a configuration has them."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from cuwheel.errors import UsageError
from cuwheel.facts.spellings import table

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
        yield f"{text!r}: {error}; write a literal brace twice, {{{{ or }}}}"
        return
    for name in names:
        if name not in NAMES:
            yield f"{text!r}: unknown placeholder {{{name}}}; choose from {', '.join(NAMES)}"


def _names(text: str) -> Iterator[str]:
    for _, name, form, conversion in string.Formatter().parse(text):
        if name is not None:
            yield name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")


def fill(text: str, values: Mapping[str, str | None]) -> str:
    """A text without placeholders. A value of None is one that this job does not have."""
    sentences = []
    for literal, name, _, _ in string.Formatter().parse(text):
        sentences.append(literal)
        if name is None:
            continue
        value = values[name]
        if value is None:
            raise UsageError(
                f"{text!r}: {{{name}}} has no value for this job",
                hint="cuwheel plan shows why, and what comes nearest",
            )
        sentences.append(value)
    return "".join(sentences)
