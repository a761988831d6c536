"""What is to be explained: a log, or a recorded call. Values alone: most who explain have no record."""

from __future__ import annotations

from msgspec import Struct, field

from cuwheel.building.recording.calls import CallState
from cuwheel.diagnosis.known import Version
from cuwheel.diagnosis.text import Log
from cuwheel.support.cause import Cause, Evidence


class Setting(Struct, frozen=True, kw_only=True):
    """A variable of the call, None where it is not set. `changed`: by the build. `origin`: the file that sets it.

    `steers`: it is known to lead compilers.
    """

    name: str
    value: str | None
    changed: bool
    steers: bool
    origin: str = ""


class RecordedCall(Struct, frozen=True, kw_only=True):
    """`command`: to paste. `output`: its last lines. `settings`: what steers compilers, and what the build changed.

    `blame`: what `replay --diff` found to make the difference, where it was run.
    """

    record: str
    number: int
    command: str
    directory: str
    state: CallState
    status: int | None
    ended: str
    output: tuple[str, ...]
    settings: tuple[Setting, ...]
    blame: str = ""


class Case(Struct, frozen=True, kw_only=True):
    """What is to be explained: one log, or several of which the first counts most."""

    logs: tuple[Log, ...]
    facts: dict[str, str] = field(default_factory=dict)
    call: RecordedCall | None = None
    tried: tuple[Evidence, ...] = ()


# What explaining a log gives: frozen values that the report and JSON show.


class WayOut(Struct, frozen=True, kw_only=True):
    """What can be done instead of mending the cause, the best first."""

    id: str
    title: str
    text: str


class Heard(Struct, frozen=True, kw_only=True):
    """Who says that something failed, and what; of a log whose cause is not known."""

    speaker: str
    line: int
    text: str


class Diagnosis(Struct, frozen=True, kw_only=True):
    causes: tuple[Cause, ...]
    ways_out: tuple[WayOut, ...]
    versions: tuple[Version, ...]
    situations: tuple[str, ...]
    tried: tuple[Evidence, ...]
    command: Evidence | None = None
    understood: tuple[Heard, ...] = ()
