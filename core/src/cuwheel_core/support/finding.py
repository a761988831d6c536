"""What is worth telling of a file: findings, each of a rule that has a row in `finding_rules.toml`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel_core.support.structs import decoder

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first
RULES = Path(__file__).with_name("finding_rules.json")
Subject = TypeVar("Subject")
RuleFunction: TypeAlias = Callable[[Subject], Iterator["Finding"]]  # what looks for the findings of one rule


# What a fix changes, so that nobody has to read that out of its words. `nothing`: it only looks.
Change: TypeAlias = Literal[
    "nothing",
    "driver",
    "system",
    "package",
    "release",
    "toolkit",
    "compiler",
    "build",
    "variable",
    "file",
    "configuration",
    "machine",
]
Words: TypeAlias = tuple[str, ...]
ShellName: TypeAlias = Literal["", "posix", "cmd", "powershell"]  # empty: the reader's own


class Fix(Struct, frozen=True, kw_only=True):
    """One way to put something right.

    `text` says it to a person and reads alone. `commands` do it, one after the other; each is a list of words, quoted
    only where it is shown, for the shell that is there. `export NAME=VALUE`, also with `:$NAME` at its end, and
    `unset NAME` set variables of that shell. `changes`: what is different afterwards.

    `needs`, `unless` and `fills` are ids of facts: what must be there, what shows that it is done already or cannot
    work, and what was put into its words. `shell`: where the commands are typed, if that is not where they are read.
    """

    text: str = ""
    commands: tuple[Words, ...] = ()
    changes: tuple[Change, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    shell: ShellName = ""

    @property
    def words(self) -> str:
        """Text and commands in one sentence, as JSON has it beside the parts; commands in the quotes of sh."""
        lines = [shlex.join(command) for command in self.commands]
        if not self.text:
            return ", then ".join(lines)
        return f"{self.text}: {', then '.join(f'`{line}`' for line in lines)}" if lines else self.text


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
        force_setattr(self, "fix", ", or ".join(each.words for each in self.fixes))


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
