"""What a wheel of ours says of itself, made true again after code was taken out of it."""

from __future__ import annotations

import ast
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError, MalformedError
from cuwheel.inspection import description
from cuwheel.inspection.survey import survey
from cuwheel.stamping import described, guard, stamp
from cuwheel.wheel.zip_reader import ZipReader

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.inspection.values import Survey

_INSTEAD = "INSTEAD = "


def restamp(made: Path, name: str) -> Path:
    """`made`: a wheel whose file is not called so yet; `name`: what it will be called. The wheel to go on with."""
    wheel = made.with_name(name)
    made.replace(wheel)
    told = None
    with contextlib.suppress(CuwheelError):  # one that cannot be understood is left as it is
        told = description.read(wheel)
    if told is None:
        return wheel
    found = survey(wheel, detail="containers")
    left = {row.arch for library in found.libraries for row in library.device_code}
    told = replace(
        told,
        archs=tuple(each for each in told.archs if each in left),
        ptx=tuple(each for each in told.ptx if each in left),
        coverage=described.reach(found),
    )
    wish = stamp.Wish(description=told, guard=guard_of(wheel, found))
    try:
        return stamp.stamp(wheel, made.parent / "stamped", wish)
    except MalformedError:  # somebody has changed it since: its RECORD was wrong before
        return wheel


def guard_of(wheel: Path, found: Survey) -> guard.Wish | None:
    """The guard that a wheel has, for what is in it now."""
    reader = ZipReader(wheel)
    try:
        name = next((each for each in reader.members if each.endswith(f"/{guard.FILE}")), None)
        text = reader.text(name) if name else None
    finally:
        reader.close()
    if name is None or text is None:
        return None
    package = stamp.import_path(name.rpartition("/")[0]).replace("/", ".")
    return guard.of(found, package, message=_message(text))


def _message(text: str) -> str:
    """What the package wanted said, from the guard that is there."""
    for line in text.splitlines():
        if line.startswith(_INSTEAD):
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return str(ast.literal_eval(line.removeprefix(_INSTEAD)))
    return ""
