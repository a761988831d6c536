"""What a wheel of ours says of itself, made true again after code was taken out of it or put into it."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.stamp import described, guard, stamp
from cuwheel.device_code import description
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import CuwheelError, MalformedError
from cuwheel.support import system_calls
from cuwheel.wheel import file
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.device_code.libraries import Survey
    from cuwheel.facts.arch import Arch

_INSTEAD = "INSTEAD = "


def restamp(made: Path, name: str, *, added: Sequence[Arch] = ()) -> Path:
    """`made`: a wheel whose file is not called so yet; `name`: what it will be called. The wheel to go on with.

    `added`: architectures that it has got.
    """
    path = made.with_name(name)
    system_calls.rename_over(made, path)
    with WheelFile(path) as wheel:
        before = None
        with contextlib.suppress(CuwheelError):  # one that cannot be understood is left as it is
            before = description.of_wheel(wheel)
        if before is None:
            return path
        found = survey_wheel(wheel, detail="containers")
        there = {row.arch for library in found.libraries for row in library.device_code}
        after = replace(
            before,
            archs=_listed(before.archs, [each for each in added if each.kind == "sm"], there),
            ptx=_listed(before.ptx, [each for each in added if each.kind == "compute"], there),
            coverage=described.reach(found),
        )
        wish = stamp.Wish(description=after, guard=guard_of(wheel, found))
        try:
            return stamp.stamp(wheel, made.parent / "stamped", wish)
        except MalformedError:  # somebody has changed it since: its RECORD was wrong before
            return path


def _listed(before: Sequence[str], added: Sequence[Arch], there: set[Arch]) -> tuple[str, ...]:
    """Those that it has, in order."""
    wanted = {each for each in there if each in before or each in added}
    return tuple(map(str, sorted(wanted, key=lambda each: (each.capability, each.suffix))))


def guard_of(wheel: WheelFile, found: Survey) -> guard.Wish | None:
    """The guard that a wheel has, for what is in it now."""
    name = next((each for each in wheel.members if each.endswith(f"/{guard.FILE}")), None)
    text = wheel.text(name) if name else None
    place = file.installed_path(name) if name else None
    if place is None or text is None:
        return None
    package = place.rpartition("/")[0].replace("/", ".")
    return guard.of(found, package, message=_message(text))


def _message(text: str) -> str:
    """What the package wanted said, from the guard that is there."""
    for line in text.splitlines():
        if line.startswith(_INSTEAD):
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return str(ast.literal_eval(line.removeprefix(_INSTEAD)))
    return ""
