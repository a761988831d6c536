"""The list of architectures of a build, which CUB and Thrust put into the names of their kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LISTED = re.compile(r"(\d{1,3})(?=(?:CUB|THRUST)_\d+_)")
_NUMBERS = re.compile(r"(?<=_)\d{3,4}(?=_|$)")


def in_names(names: Iterable[str]) -> Iterator[str]:
    """The part of each name that has it: `_800_900`."""
    for name in names:
        for match in _LISTED.finditer(name):
            # Only the length before a name tells where it ends: a digit may follow.
            for digits in (match[1], match[1][-2:]):
                text = name[match.end() : match.end() + int(digits)]
                if text.startswith(("CUB_", "THRUST_")) and len(text) == int(digits):
                    yield text.partition("_SM")[2] or "_" + text.split("_", 2)[2].removesuffix("_NS")
                    break


def numbers(text: str) -> tuple[str, ...]:
    """As `__CUDA_ARCH_LIST__` has them: 900 for 9.0."""
    return tuple(_NUMBERS.findall(text))
