"""A whole machine: what it is, what is wrong with it, and with the CUDA packages that are installed on it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.machine import probe
from cuwheel.machine.profile import MachineProfile
from cuwheel.support.finding import Finding
from cuwheel.verdicts import installed, machine_rules

if TYPE_CHECKING:
    from pathlib import Path


class Examination(Struct, frozen=True, kw_only=True):
    machine: MachineProfile
    findings: tuple[Finding, ...]


def of_profile(machine: MachineProfile) -> Examination:
    """Of another machine, whose files cannot be looked at."""
    return Examination(machine=machine, findings=machine_rules.examine(machine))


def of_this_machine(env: Path | None) -> Examination:
    """`env`: the Python environment whose packages count."""
    with ThreadPoolExecutor(1) as beside:  # the probes mostly wait for programs
        packages = beside.submit(installed.with_device_code, env)
        machine = probe.probe(env)
    found = machine_rules.examine(machine)
    of_packages = installed.examine(machine, packages.result(), found)
    return Examination(machine=machine, findings=(*found, *installed.cut(env), *of_packages))
