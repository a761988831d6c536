"""The gate: may a wheel leave the build? Every one is inspected and held against the plan that it was built from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building import gate_code, gate_limits, gate_units
from cuwheel.building.gate_case import Case
from cuwheel.building.gate_values import Listed, Result, Wanted
from cuwheel.device_code.survey import survey
from cuwheel.support.finding import gravest_first
from cuwheel.verdicts import rule, wheel_tags
from cuwheel.verdicts.wheel_subject import Subject
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from cuwheel.building.tables import GateTable
    from cuwheel.device_code.libraries import Survey
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.rule import Rule

__all__ = ["RULES", "Listed", "Result", "Wanted", "examine", "examine_merged"]

RULES: tuple[Rule[Case], ...] = (*gate_code.RULES, *gate_limits.RULES)
_TAG_RULES = tuple(each for each in wheel_tags.RULES if each.severity == "error")  # a plain linux tag is not wrong


def examine_merged(found: Survey, table: GateTable) -> Result:
    """A wheel of several that passed already, each against its own plan: what only the whole can get wrong."""
    case = Case(survey=found, wanted=Wanted(archs=(), ptx=(), cuda="", table=table), units=())
    findings = (*gate_limits.wheel_over_budget.findings(case), *_about_tags(found))
    failed = table.enabled and any(finding.severity == "error" for finding in findings)
    return Result(findings=findings, listed=(), succeeded=not failed)


def _about_tags(found: Survey) -> tuple[Finding, ...]:
    with WheelFile(Path(found.target)) as wheel:
        return rule.examine(_TAG_RULES, Subject(wheel=wheel, survey=found))


def examine(found: Survey, wanted: Wanted) -> Result:
    """`found` with `detail="containers"` or more, of a wheel that is still where it was read."""
    if any(library.registration.containers and not library.containers for library in found.libraries):
        found = survey(found.target, detail="containers")
    foreign = tuple(library for library in found.libraries if gate_limits.nvidia(library))
    theirs = {library.path for library in foreign}
    own = [library for library in found.libraries if library.containers and library.path not in theirs]
    case = Case(survey=found, wanted=wanted, units=gate_units.read(found, own, wanted), foreign=foreign)
    judged = (*rule.examine(RULES, case), *_about_tags(found))
    findings = gravest_first(judged)
    failed = wanted.table.enabled and any(finding.severity == "error" for finding in findings)
    return Result(findings=findings, listed=case.listed(), succeeded=not failed)
