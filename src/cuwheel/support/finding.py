"""What any stage reports to people: findings, each of a rule that has a row in `finding_rules.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from cuwheel.support import codec

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first
RULES_FILE = Path(__file__).with_name("finding_rules.toml")
Subject = TypeVar("Subject")
RuleFunction: TypeAlias = Callable[[Subject], Iterator["Finding"]]  # what looks for the findings of one rule


class Finding(Struct, frozen=True, kw_only=True):
    """`rule` is a stable id. `evidence`: the facts it rests on. `fix`: a command, or the shortest way to one."""

    rule: str
    severity: Severity
    message: str
    evidence: tuple[str, ...] = ()
    fix: str = ""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `finding_rules.toml`. `severity` is the usual one; `fix`: what helps in general."""

    id: str
    severity: Severity
    why: str
    source: str
    fix: str = ""


def finding(
    rule: str,
    message: str,
    *,
    evidence: tuple[str, ...] = (),
    fix: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """A finding of the rule with this id; `fix` and `severity` where this one knows better than the rule's row."""
    row = find_rule(rule)
    return Finding(
        rule=rule,
        severity=severity or row.severity,
        message=message,
        evidence=evidence,
        fix=row.fix if fix is None else fix,
    )


@cache
def find_rule(rule: str) -> Rule:
    """Its row alone is parsed: the file is long, an answer has few kinds of findings, and it has to come fast."""
    _, found, rest = _rules_text().partition(f'\nid = "{rule}"\n')
    if not found:
        raise KeyError(rule)
    lines = (line.partition(" = ") for line in rest.partition("\n\n")[0].splitlines())
    return Rule(id=rule, **{key: codec.decode(value) for key, _, value in lines})  # TOML's basic strings are JSON's


@cache
def _rules_text() -> str:
    return RULES_FILE.read_text(encoding="utf-8")


def examine(rules: Iterable[RuleFunction[Subject]], subject: Subject) -> tuple[Finding, ...]:
    """What all rules find, the gravest first, otherwise in the order of the rules."""
    return gravest_first(each for rule in rules for each in rule(subject))


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors before warnings before notes; those of the same severity stay in their order."""
    return tuple(sorted(findings, key=lambda each: SEVERITIES.index(each.severity)))


class Evidence(Struct, frozen=True, kw_only=True):
    """A line of the log, without colours, times and CI prefixes; `line` counts from 1."""

    line: int
    text: str


class Cause(Struct, frozen=True, kw_only=True):
    """`id`: stable, the name of its page in docs/reference/causes. `fix`: the most specific first.

    `follows`: the cause of which this one is a consequence, where that was found too. `when`: of one that it may be
    instead of the first, what shows that.
    """

    id: str
    confidence: float
    title: str
    evidence: tuple[Evidence, ...]
    fix: tuple[str, ...]
    follows: str = ""
    when: str = ""
