"""What is worth telling of a file: findings, each of a rule that has a row in `finding_rules.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel_core.fix import Change, Fix, ShellName, Words, in_words
from cuwheel_core.support.structs import decoder

__all__ = [
    "RULES", "SEVERITIES", "Change", "Finding", "Fix", "Rule", "RuleFunction", "RuleGroup", "RuleTable", "Severity",
    "ShellName", "Words", "examine", "find_rule", "finding", "finding_of", "gravest_first",
]  # fmt: skip

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first
RULES = Path(__file__).with_name("finding_rules.json")
Subject = TypeVar("Subject")
RuleFunction: TypeAlias = Callable[[Subject], Iterator["Finding"]]  # what looks for the findings of one rule


class Finding(Struct, frozen=True, kw_only=True):
    """`rule` is a stable id. `evidence`: the facts it rests on. `fixes`: ways to put it right, the best first.

    `fix` is made from them: their words in one line. `message` is made from `says`, a sentence, or, where there is a
    `subject`, what is so of that; `about` names what it holds for, where several are spoken of.
    """

    rule: str
    severity: Severity
    message: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""
    fixes: tuple[Fix, ...] = ()
    says: str = ""
    subject: str = ""
    about: str = ""

    def __post_init__(self) -> None:
        if not self.says:
            force_setattr(self, "says", self.message)
        sentence = f"{self.subject} {self.says}" if self.subject else self.says
        force_setattr(self, "message", f"{self.about}: {sentence}" if self.about else sentence)
        force_setattr(self, "fix", in_words(self.fixes))


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `finding_rules.toml`. `severity` is the usual one.

    `fix`, `commands`, `changes`: what helps in general.
    """

    id: str
    severity: Severity
    why: str
    source: str
    fix: str = ""
    commands: tuple[Words, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def fixes(self) -> tuple[Fix, ...]:
        if not self.fix and not self.commands:
            return ()
        return (Fix(text=self.fix, commands=self.commands, changes=self.changes),)


class RuleGroup(Struct, frozen=True, kw_only=True):
    """Rules of one kind, as the pages list them."""

    title: str
    what: str
    rule: tuple[Rule, ...]


class RuleTable(Struct, frozen=True, kw_only=True):
    """finding_rules.toml."""

    group: tuple[RuleGroup, ...]


def finding(
    rule: str,
    message: str = "",
    *,
    predicate: str = "",
    about: str = "",
    evidence: tuple[str, ...] = (),
    fix: str | Fix | Sequence[Fix] | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding of the core's rule with this id; see `finding_of`."""
    return finding_of(
        find_rule(rule), message, predicate=predicate, about=about, evidence=evidence, fix=fix, severity=severity
    )


def finding_of(
    row: Rule,
    message: str = "",
    *,
    predicate: str = "",
    about: str = "",
    evidence: tuple[str, ...] = (),
    fix: str | Fix | Sequence[Fix] | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding of a rule; `fix` and `severity` where this one knows better than the rule's row."""
    if fix is None:
        fix = row.fixes
    elif isinstance(fix, str):
        fix = Fix(text=fix) if fix else ()
    return Finding(
        rule=row.id,
        severity=severity or row.severity,
        says=predicate or message,
        subject="it" if predicate else "",
        about=about,
        evidence=evidence,
        fixes=(fix,) if isinstance(fix, Fix) else tuple(fix),
    )


def find_rule(rule: str) -> Rule:
    """The row of a rule of the core's. Raises KeyError."""
    return _rules()[rule]


@cache
def _rules() -> dict[str, Rule]:
    return {row.id: row for group in decoder(RuleTable).decode(RULES.read_bytes()).group for row in group.rule}


def examine(rules: Iterable[RuleFunction[Subject]], subject: Subject) -> tuple[Finding, ...]:
    """What all rules find, the gravest first, otherwise in the order of the rules."""
    return gravest_first(each for rule in rules for each in rule(subject))


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors before warnings before notes; those of the same severity stay in their order."""
    return tuple(sorted(findings, key=lambda each: SEVERITIES.index(each.severity)))
