"""What can be wrong with a machine: ordered rules over its profile. Pure: nothing here looks at the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.verdicts.machine_rules import compilers, driver, packages
from cuwheel_core.support.finding import Finding, RuleFunction
from cuwheel_core.support.finding import examine as examine_checks

if TYPE_CHECKING:
    from cuwheel.machine.profile import MachineProfile

RULES: tuple[RuleFunction[MachineProfile], ...] = (
    *driver.RULES,
    *packages.RULES,
    *compilers.TOOLKIT_RULES,
    *compilers.RULES,
    *packages.VARIABLE_RULES,
)


def examine(machine: MachineProfile) -> tuple[Finding, ...]:
    return examine_checks(RULES, machine)
