"""What explaining a log gives: frozen values that the report and JSON show."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.diagnosis.known import Version


class Evidence(Struct, frozen=True, kw_only=True):
    """A line of the log, without colours, times and CI prefixes; `line` counts from 1."""

    line: int
    text: str


class Cause(Struct, frozen=True, kw_only=True):
    """`id`: stable, the name of its page in docs/causes. `fix`: the most specific first."""

    id: str
    confidence: float
    title: str
    evidence: tuple[Evidence, ...]
    fix: tuple[str, ...]


class WayOut(Struct, frozen=True, kw_only=True):
    """What can be done instead of mending the cause, the best first."""

    id: str
    title: str
    text: str


class Diagnosis(Struct, frozen=True, kw_only=True):
    causes: tuple[Cause, ...]
    ways_out: tuple[WayOut, ...]
    versions: tuple[Version, ...]
    situations: tuple[str, ...]
    tried: tuple[Evidence, ...]
    command: Evidence | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """Why a job ended: the first call that failed and mattered, if one did, and what `explain` makes of its words."""

    what: str
    phase: str = ""
    call: int | None = None
    command: str = ""
    cwd: str = ""
    status: int | None = None
    output: str = ""  # the end of what it printed
    replay: str = ""  # the command that runs it again
    causes: tuple[Cause, ...] = ()
