"""What a rule is: a stable id, why it matters, where that is known from, and a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from cuwheel.support.finding import Finding, Severity, gravest_first

if TYPE_CHECKING:
    from collections.abc import Iterable

Subject = TypeVar("Subject")


class Found(Struct, frozen=True, kw_only=True):
    """What a check yields; its rule adds the id, and severity and fix unless the check knows better."""

    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    severity: Severity | None = None


class Rule(Struct, Generic[Subject], frozen=True, kw_only=True):
    """`fix`: what helps in general; a check that knows more says it itself."""

    id: str
    severity: Severity
    why: str
    source: str
    check: Callable[[Subject], Iterator[Found]]
    fix: str = ""

    def findings(self, subject: Subject) -> Iterator[Finding]:
        for found in self.check(subject):
            yield Finding(
                rule=self.id,
                severity=found.severity or self.severity,
                message=found.message,
                evidence=found.evidence,
                fix=found.fix or self.fix,
            )


def rule(
    id_: str, *, severity: Severity, why: str, source: str, fix: str = ""
) -> Callable[[Callable[[Subject], Iterator[Found]]], Rule[Subject]]:
    def make(check: Callable[[Subject], Iterator[Found]]) -> Rule[Subject]:
        return Rule(id=id_, severity=severity, why=" ".join(why.split()), source=source, check=check, fix=fix)

    return make


def examine(rules: Iterable[Rule[Subject]], subject: Subject) -> tuple[Finding, ...]:
    """What all rules find, the gravest first, otherwise in the order of the rules."""
    found = [finding for each in rules for finding in each.findings(subject)]
    return gravest_first(found)
