"""Numbers, versions, specifiers, requirements and names of files in texts that strangers wrote, with a limit.

Python refuses to read more than 4,300 digits, and no float holds more than 308 of them; no size, count or version has
twenty. `packaging` hands every row of digits to `int`, some of them long after it has accepted the text, and runs out
of stack where brackets are nested by the thousand. So all code that makes such values of texts calls this module:
digits by the thousand are a number that is too large, and a version that has them is none. It imports of `packaging`
what is asked for, and that when it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel_core.support.patterns import lazy_pattern

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.tags import Tag
    from packaging.utils import BuildTag, NormalizedName
    from packaging.version import Version


# What `packaging` makes of texts. Whatever it refuses, and what has a limit here, is its own kind of error.

_DIGITS_IN_A_ROW = 100  # in a row: a date has 8, the hash of a commit in a local version at most 40
_LONG_NUMBER = lazy_pattern(rf"\d{{{_DIGITS_IN_A_ROW + 1}}}")
_LONGEST = 10_000  # characters of a requirement with its conditions: those of real packages have some hundred
_MOST_BRACKETS = 50


def _problem(text: str) -> str:
    """Why nobody reads it; empty where it has no more of anything than real ones have."""
    if len(text) > _LONGEST:
        return f"longer than {_LONGEST:,} characters"
    if _LONG_NUMBER.search(text):
        return f"a number of more than {_DIGITS_IN_A_ROW} digits"
    if text.count("(") > _MOST_BRACKETS:
        return f"more than {_MOST_BRACKETS} brackets"
    return ""


def version(text: str) -> Version:
    """A version; InvalidVersion where it is none."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    if problem := _problem(text):
        raise InvalidVersion(problem)
    return Version(text)


def specifiers(text: str, *, prereleases: bool | None = None) -> SpecifierSet:
    """What a version must be, such as `>=1.2,<2`; InvalidSpecifier where it is nothing of the kind."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    if problem := _problem(text):
        raise InvalidSpecifier(problem)
    return SpecifierSet(text, prereleases=prereleases)


def requirement(text: str) -> Requirement:
    """A name with extras, versions and conditions; InvalidRequirement where it is none."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415

    if problem := _problem(text):
        raise InvalidRequirement(problem)
    return Requirement(text)


def wheel_file(name: str) -> tuple[NormalizedName, Version, BuildTag, frozenset[Tag]]:
    """The parts of the name of a wheel's file; InvalidWheelFilename where it is none."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # noqa: PLC0415

    if problem := _problem(name):
        raise InvalidWheelFilename(problem)
    return parse_wheel_filename(name)


def sdist_file(name: str) -> tuple[NormalizedName, Version]:
    """The parts of the name of a source distribution's file; InvalidSdistFilename where it is none."""
    from packaging.utils import InvalidSdistFilename, parse_sdist_filename  # noqa: PLC0415

    if problem := _problem(name):
        raise InvalidSdistFilename(problem)
    return parse_sdist_filename(name)
