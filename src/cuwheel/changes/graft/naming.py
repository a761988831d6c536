"""What new wheels are called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from cuwheel.errors import MalformedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.changes.graft.deciding import Decision
    from cuwheel.changes.graft.note import Origin
    from cuwheel.wheel.file import WheelFile


def grafted_version(wheel: WheelFile, decisions: Sequence[Decision], origin: Origin | None, asked: str | None) -> str:
    """The one asked for; that of the whole, where all its parts are together; else with a label for what was added."""
    if asked:
        return _checked(asked, None)
    added = dict.fromkeys(str(each.entry.arch) for decision in decisions for each in decision.added)
    if origin and _complete(decisions, origin):
        return _checked(origin.version, wheel)
    return labelled(wheel, [each for each in added if each.startswith("sm_")] or added)


def _complete(decisions: Sequence[Decision], origin: Origin) -> bool:
    there = {
        str(each.entry.arch)
        for decision in decisions
        for number, held in enumerate(decision.base.held)
        for each in decision.containers.get(number, held)
    }
    return set(origin.archs) <= there


def labelled(wheel: WheelFile, archs: Iterable[str]) -> str:
    """`1.0+cu130` and sm_87 → `1.0+cu130.sm87`."""
    version = _checked(wheel.distribution.version, wheel)
    label = ".".join(re.sub(r"[^a-z0-9]", "", each) for each in archs)
    return f"{version}{'.' if '+' in version else '+'}{label}"


def _checked(version: str, wheel: WheelFile | None) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as error:
        if wheel is None:
            raise UsageError(f"--version {version}: {error}", hint="such as --version 2.11.0+sm87") from error
        raise MalformedError(wheel.path, f"{version!r} is not a version", hint="download the wheel again") from error
