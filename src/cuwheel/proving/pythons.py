"""Which interpreters a wheel is tried with: those asked for that its tags allow, else one that they name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import CuwheelError
from cuwheel.network import venvs
from cuwheel.network.venvs import Python
from cuwheel.verdicts import wheel_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.libraries import Survey
    from cuwheel.machine.fleet import Machine

_CP = re.compile(r"cp(\d)(\d+)-", re.ASCII)


class Choice(Struct, frozen=True, kw_only=True):
    """`python` None: why the wheel is not tried with this version. It is left out, or nothing else was left either."""

    version: str
    python: Python | None
    problem: str = ""
    outcome: Literal["failed", "skipped"] = "failed"


def choose(survey: Survey, wanted: Sequence[str], here: Machine) -> tuple[Choice, ...]:
    """One for each version asked for. A wheel that fits some of them is not wrong for the others."""
    versions: list[str | None] = [*dict.fromkeys(wanted)] or [_named(survey, here)]
    found = [_choice(survey, version, here) for version in versions]
    if any(each.python for each in found):
        found = [replace(each, outcome="skipped") if each.problem.startswith(_UNFIT) else each for each in found]
    return tuple(found)


_UNFIT = "its tags do not allow it: "


def _choice(survey: Survey, version: str | None, here: Machine) -> Choice:
    try:
        python = venvs.find_python(version)
    except CuwheelError as error:
        problem = f"{error.message}\nhint: {error.hint}" if error.hint else error.message
        return Choice(version=version or "3", python=None, problem=problem)
    distribution = survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, replace(here, python=python.version)) if distribution else ()
    if found and found[0].problems:
        return Choice(version=python.version, python=None, problem=_UNFIT + " and ".join(found[0].problems))
    return Choice(version=python.version, python=python)


def _named(survey: Survey, here: Machine) -> str | None:
    """None for the interpreter that runs cuwheel, if the wheel takes it; else the newest that a tag names."""
    distribution = survey.distribution
    found = wheel_tags.fits_on_machine(distribution.tags, here) if distribution else ()
    problems = found[0].problems if found else ()
    # Another Python helps only where nothing else is in the way (a wheel for Windows).
    if not problems or not all("Python" in each for each in problems):
        return None
    named = sorted((int(match[1]), int(match[2])) for each in found if (match := _CP.match(each.tag)))
    return ".".join(map(str, named[-1])) if named else None
