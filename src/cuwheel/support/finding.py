"""What any stage reports to people: the same value for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first


class Finding(Struct, frozen=True, kw_only=True):
    """`rule` is a stable id. `evidence`: the facts it rests on. `fix`: a command, or the shortest way to one."""

    rule: str
    severity: Severity
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors before warnings before notes; those of the same severity stay in their order."""
    return tuple(sorted(findings, key=lambda each: SEVERITIES.index(each.severity)))
