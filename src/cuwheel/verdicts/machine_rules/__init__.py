"""What can be wrong with a machine: ordered rules over its profile. Pure: nothing here looks at the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.verdicts import rule
from cuwheel.verdicts.machine_rules import compilers, driver, packages, toolkits, variables

if TYPE_CHECKING:
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.rule import Rule

RULES: tuple[Rule[MachineProfile], ...] = (
    *driver.RULES,
    *packages.RULES,
    *toolkits.RULES,
    *compilers.RULES,
    *variables.RULES,
)


def examine(machine: MachineProfile) -> tuple[Finding, ...]:
    return rule.examine(RULES, machine)
