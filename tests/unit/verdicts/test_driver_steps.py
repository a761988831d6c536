"""Verdicts by driver: what the steps say of any driver is what `check` says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.machine.fleet import Machine
from cuwheel.verdicts import driver_steps
from cuwheel.verdicts.judge import Judge
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.arch import Capability
from tests.unit.verdicts.subjects import library, survey

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.verdicts.driver_steps import DriverStep

SUBJECTS = {
    "machine code": survey(library("sm_90 sm_80")),
    "zstd": survey(library("sm_90", compression="zstd")),
    "old ptx": survey(library("compute_70", cuda=12)),
    "new ptx": survey(library("compute_90", "sm_90", cuda=13)),
    "objects": survey(library(linked=("sm_80",), objects=("sm_80", "sm_90"))),
    "cuda 11": survey(library("sm_70 compute_75", cuda=11)),
    "windows": survey(library("sm_89 compute_89", format="pe")),
}
DRIVERS = sorted(
    {
        each
        for row in toolkits.all_releases()
        for floor in (row.driver.linux, row.driver.windows)
        if floor
        for each in (floor, f"{versions.major(floor)}.01", f"{versions.major(floor) - 1}.99.99", f"{floor}.5")
    },
    key=versions.key,
)


def at(steps: tuple[DriverStep, ...], driver: str) -> DriverStep:
    return [each for each in steps if each.since is not None and versions.at_least(driver, each.since)][-1]


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("capability", ["7.0", "8.0", "8.9", "9.0", "12.0"])
def test_every_driver_is_told_as_check_tells_it(subject: Survey, capability: str) -> None:
    judge = Judge(subject)
    machine = Machine(name="m", capability=Capability.parse(capability))
    steps = driver_steps.driver_steps(judge, subject, machine)
    assert steps[0].since is None
    assert steps[0].answer.outcome == judge.on(machine).outcome
    for driver in DRIVERS:
        answer, verdict = (
            at(steps, driver).answer,
            judge.on(Machine(name="m", capability=Capability.parse(capability), driver=driver)),
        )
        gpu = f"GPU of capability {capability}"
        messages = [each.message.replace("{driver}", driver).replace("{gpu}", gpu) for each in answer.findings]
        assert (answer.outcome, answer.predicted_error) == (verdict.outcome, verdict.predicted_error), driver
        assert messages == [each.message for each in verdict.findings], driver


def test_steps_are_few() -> None:
    subject = SUBJECTS["machine code"]
    assert (
        len(driver_steps.driver_steps(Judge(subject), subject, Machine(name="m", capability=Capability.parse("9.0"))))
        <= 4
    )


def test_a_jetson_has_the_driver_of_its_system() -> None:
    subject = survey(library("sm_87"))
    machine = Machine(name="m", capability=Capability.parse("8.7"), l4t="36.4", os="linux", cpu="aarch64")
    assert [each.since for each in driver_steps.driver_steps(Judge(subject), subject, machine)] == [None]
