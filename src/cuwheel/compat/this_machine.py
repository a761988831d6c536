"""What the rules of `check` find in the CUDA packages of an environment, on the machine that it is on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cuwheel import log, parallel
from cuwheel.compat import installed as rules
from cuwheel.inspection import presence
from cuwheel.inspection.source import cut_to_workload
from cuwheel.inspection.survey import survey
from cuwheel.machine import named, python_environment, world
from cuwheel.wheel.installed import distributions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.finding import Finding
    from cuwheel.inspection.presence import WithDeviceCode
    from cuwheel.machine.fleet import Machine
    from cuwheel.machine.profile import MachineProfile


def with_device_code(env: Path | None) -> list[WithDeviceCode]:
    """The largest first: it takes the longest."""
    _, folders = python_environment.locate(world.World.here(), env)
    return sorted(presence.distributions_with_device_code(folders), key=lambda each: -each.size)


def cut(env: Path | None) -> tuple[Finding, ...]:
    """Whether packages of an environment were cut to a workload: that is so with a GPU or without."""
    _, folders = python_environment.locate(world.World.here(), env)
    return cut_to_workload(each.info for folder in folders for each in distributions(folder))


def examine(machine: MachineProfile, there: Sequence[WithDeviceCode], known: Sequence[Finding]) -> tuple[Finding, ...]:
    """What `known` does not hold already. Without a GPU there is nothing to ask."""
    machines = [each for each in named.here(machine) if each.capability] if there else []
    if not machines:
        return ()
    judged = parallel.each(partial(_judged, machines=machines), there, partial(log.listen, level="error"))
    return rules.merged(sorted(judged, key=lambda each: each[0]), known)


def _judged(installed: WithDeviceCode, machines: Sequence[Machine]) -> tuple[str, tuple[Finding, ...]]:
    # Nearly everything that is installed runs, and that shows without looking for code in every corner.
    name, found = rules.judged(
        survey(installed.name, env=installed.folder, detail="containers", search="nowhere"), machines
    )
    if not any(rules.matters(each) for each in found):
        return name, ()
    return rules.judged(survey(installed.name, env=installed.folder, detail="containers"), machines)
