"""What is true of machines and of CUDA: the verbs that look things up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.support.request_fields import environment_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.profile import MachineProfile
    from cuwheel.report.doctor import Doctor
    from cuwheel.report.gpus import Gpus
    from cuwheel.report.toolkits import Toolkits


def doctor(*, on: MachineProfile | Path | None = None, env: Path | None = None, needs: Sequence[str] = ()) -> Doctor:
    """What is wrong with this machine and what is installed on it, or with the one a profile describes."""
    from cuwheel.machine import profile
    from cuwheel.report import doctor as report
    from cuwheel.verdicts import examination, prerequisites

    wanted = prerequisites.parse(needs)
    saved = profile.profile_from(on)
    found = examination.examine_profile(saved) if saved else examination.examine_this_machine(environment_folder(env))
    return report.answer_of(found.machine, found.findings, prerequisites.examine(wanted, found.machine))


def gpus(*names: str) -> Gpus:
    """The GPUs that names, parts of names or capabilities mean; all of them without one."""
    from cuwheel.facts import gpus as table
    from cuwheel.report import gpus as report

    return report.answer_of([gpu for name in names for gpu in table.look_up(name)] if names else table.all_gpus())


def toolkits(*wanted: str, compiles: str | None = None) -> Toolkits:
    """What the tables know of CUDA versions: those asked for, or all; only those that compile for a target."""
    from cuwheel.facts import toolkits as table
    from cuwheel.report import toolkits as report
    from cuwheel.verdicts import choice

    found = [table.find_release(version) for version in wanted] if wanted else table.all_releases()
    return report.answer_of(choice.releases_compiling(found, compiles) if compiles else found)
