"""What any stage reports to people: findings, each of a rule that has a row in `finding_rules.toml`.

Those that reading a file finds have theirs in the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from cuwheel.support import codec
from cuwheel_core.support import finding as core
from cuwheel_core.support.finding import Finding, Fix, Rule, Severity, finding_of

RULES_FILE = Path(__file__).with_name("finding_rules.toml")


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
    """A finding of the rule with this id, the tool's or the core's; see `finding_of`."""
    return finding_of(
        find_rule(rule), message, predicate=predicate, about=about, evidence=evidence, fix=fix, severity=severity
    )


def find_rule(rule: str) -> Rule:
    """The row of any rule, the tool's or the core's. Raises KeyError."""
    try:
        return _own_rule(rule)
    except KeyError:
        return core.find_rule(rule)


@cache
def _own_rule(rule: str) -> Rule:
    """Its row alone is parsed: the file is long, an answer has few kinds of findings, and it has to come fast."""
    _, found, rest = _rules_text().partition(f'\nid = "{rule}"\n')
    if not found:
        raise KeyError(rule)
    lines = (line.partition(" = ") for line in rest.partition("\n\n")[0].splitlines())
    return Rule(id=rule, **{key: codec.decode(value) for key, _, value in lines})  # TOML's basic strings are JSON's


@cache
def _rules_text() -> str:
    return RULES_FILE.read_text(encoding="utf-8")
