"""A TARGET as the verbs that read take it: whatever can be surveyed, or the facts file of a wheel."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.device_code import survey as stage
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.description import Description
    from cuwheel.device_code.libraries import Detail, Search, Survey
    from cuwheel.device_code.wheel_facts import WheelFacts
    from cuwheel.support.finding import Finding


_remembered: ContextVar[dict[tuple[object, ...], Survey] | None] = ContextVar("_remembered", default=None)


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Within it a target is read once, whatever is asked about it. For questions about files that stay as they are."""
    token = _remembered.set({})
    try:
        yield
    finally:
        _remembered.reset(token)


def survey(
    target: str | Path,
    *,
    env: Path | None = None,
    detail: Detail = "rows",
    search: Search = "data",
    python: bool = True,
) -> Survey:
    """See `cuwheel.device_code.survey`."""
    known = _remembered.get()
    if known is None:
        return _survey(target, env, detail, search, python=python)
    key = (str(target), env, detail, search)
    if key not in known:
        known[key] = _survey(target, env, detail, search, python=True)  # the next question may be for a verdict
    return known[key]


def _survey(target: str | Path, env: Path | None, detail: Detail, search: Search, *, python: bool) -> Survey:
    if (facts := _facts(target)) is None:
        return stage.survey(target, env=env, detail=detail, search=search, python=python)
    if detail == "entries" or search == "whole":
        raise UsageError(f"{target} has the facts of a wheel, not its bytes", hint="ask about the wheel itself")
    from cuwheel.device_code import wheel_facts  # noqa: PLC0415 - most targets have code in them

    return wheel_facts.survey(facts, target=str(target))


def description(
    found: Survey, target: str | Path, *, env: Path | None = None
) -> tuple[Description | None, tuple[Finding, ...]]:
    """What a surveyed target says of how it was built; see `cuwheel.device_code.description`."""
    if facts := _facts(target):
        return facts.description, ()
    from cuwheel.device_code import description as described  # noqa: PLC0415 - not every verb asks

    return described.of(found, target, env=env)


def _facts(target: str | Path) -> WheelFacts | None:
    path = Path(target)
    if not path.name.endswith(".cuwheel.json") or not path.is_file():
        return None
    from cuwheel.device_code import wheel_facts  # noqa: PLC0415 - as above

    return wheel_facts.load(path)
