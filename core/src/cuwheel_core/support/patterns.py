"""Regular expressions that are compiled when they are first used, and names with wildcards.

Compiling all those of the modules that an answer imports takes longer than most answers, which use few of them. Nothing
but the standard library of Python 3.9: this also travels in the kit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, AnyStr, Union, cast

_WILD = frozenset("*?[")


class _Pattern:
    """Stands for a pattern: its methods are those of the compiled one, from the first use of each on."""

    def __init__(self, pattern: Any, flags: Union[int, re.RegexFlag]) -> None:  # noqa: ANN401, UP007 - str or bytes
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a pattern has
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found


def lazy_pattern(pattern: AnyStr, flags: Union[int, re.RegexFlag] = 0) -> re.Pattern[AnyStr]:  # noqa: UP007
    """What `re.compile` returns, but that it may not be handed to a function of `re`."""
    return cast("re.Pattern[AnyStr]", _Pattern(pattern, flags))


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of these, in which `*`, `?` and `[…]` stand for others.

    Most are plain names: to make an expression of each takes longer than all else that is asked about a small library.
    """
    return any(name == each if _WILD.isdisjoint(each) else fnmatchcase(name, each) for each in patterns)
