"""What can be wrong with a machine: ordered rules over its profile. Pure: nothing here looks at the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.compat import rule
from cuwheel.compat.machine_rules import compilers, driver, packages, toolkits, variables

if TYPE_CHECKING:
    from cuwheel.compat.rule import Rule
    from cuwheel.finding import Finding
    from cuwheel.machine.profile import MachineProfile

RULES: tuple[Rule[MachineProfile], ...] = (
    *driver.RULES,
    *packages.RULES,
    *toolkits.RULES,
    *compilers.RULES,
    *variables.RULES,
)


def examine(machine: MachineProfile) -> tuple[Finding, ...]:
    return rule.examine(RULES, machine)
