"""What is wrong with a wheel as a file: RECORD, tags, metadata, licences. Each rule has an id that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.proving.wheel_rules import licences, metadata, record, structure, variants
from cuwheel.support.finding import gravest_first
from cuwheel.verdicts import rule, wheel_tags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.wheel_tags import WheelSubject

RULES = (*structure.RULES, *record.RULES, *wheel_tags.RULES, *metadata.RULES, *variants.RULES, *licences.RULES)


_UNSAFE = ("zip-", "record-unsafe-path")


def unsafe(findings: Iterable[Finding]) -> bool:
    """Whether the file must not be unpacked at all."""
    return any(each.rule.startswith(_UNSAFE) for each in findings)


def examine(subject: WheelSubject) -> tuple[Finding, ...]:
    """All that is found, the gravest first."""
    found = [*subject.wheel.findings, *rule.examine(RULES, subject)]
    known = {each.rule for each in found}
    # What `inspect` says of the file too, as long as it is not the same in other words.
    found += [each for each in subject.survey.findings if each.rule not in known and each.rule != "wheel-incomplete"]
    return gravest_first(dict.fromkeys(found))
