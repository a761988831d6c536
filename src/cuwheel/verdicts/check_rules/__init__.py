"""What decides whether a library runs on a machine: ordered rules. Pure: nothing here looks at either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.verdicts import rule
from cuwheel.verdicts.check_rules import code, driver, host, package

if TYPE_CHECKING:
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.check_rules.case import Case, Whole
    from cuwheel.verdicts.rule import Rule

HOST_RULES: tuple[Rule[Case], ...] = host.RULES
CODE_RULES: tuple[Rule[Case], ...] = (*driver.RULES, *code.RULES)
ANOTHER_MACHINE = frozenset({host.wrong_processor.id, host.wrong_system.id})  # beyond these nothing is worth saying
STARTS_SLOWLY = frozenset({code.compiled_by_driver.id, code.linked_at_load.id})  # said only of what does run
PACKAGE_RULES: tuple[Rule[Whole], ...] = package.RULES


def examine_host(case: Case) -> tuple[Finding, ...]:
    """What keeps the library from being loaded, GPU or not."""
    return rule.examine(HOST_RULES, case)


def examine_code(case: Case) -> tuple[Finding, ...]:
    """What becomes of its device code; all of it is in the prediction, and here in words."""
    return rule.examine(CODE_RULES, case)


def examine_package(whole: Whole) -> tuple[Finding, ...]:
    return rule.examine(PACKAGE_RULES, whole)
