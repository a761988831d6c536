"""What any stage reports to people: the same value for all of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first


class Finding(Struct, frozen=True, kw_only=True):
    """`rule` is a stable id. `evidence`: the facts it rests on. `fix`: a command, or the shortest way to one."""

    rule: str
    severity: Severity
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
