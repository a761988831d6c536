"""What runs where, and what to build for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.device_code.target import downloaded_if_pinned, survey_target
from cuwheel.support.request_fields import environment_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.report.check import Check
    from cuwheel.report.plan import Plan


def check(
    *targets: str | Path,
    on: Sequence[str | Path | Machine] = (),
    refine: Refinement | None = None,
    env: Path | None = None,
    platform: str | None = None,
    cluster: str | None = None,
) -> Check:
    """Whether wheels (or their facts files), libraries or installed distributions run on machines, how, and why not.

    `on`: GPU names, capabilities, machine profiles, fleet files or `Machine` values; without one, this machine.
    `env`: the Python environment that the packages are in, or come into: its torch and variables are the machines'.
    `cluster`: whose workers read the files.
    """
    from cuwheel.machine import named, python_environment
    from cuwheel.report.check import Check, targets_of
    from cuwheel.verdicts import matrix

    env = environment_folder(env)
    machines = named.machines_asked_for(on, refine, env=env)
    if cluster:
        from cuwheel.clusters import surveys

        found = surveys.on_cluster(targets, cluster, platform=platform, env=env)
    else:
        found = [
            survey_target(downloaded_if_pinned(target, platform), env=env, detail="containers") for target in targets
        ]
    torch = python_environment.torch_exports(env, python_environment.taken(found)) if env or not on else None
    return Check(
        targets=targets_of(found),
        machines=machines,
        verdicts=tuple(verdict for each in found for verdict in matrix.judge_all(each, machines, torch)),
    )


def plan(
    *machines: str | Path | Machine,
    refine: Refinement | None = None,
    cuda: Sequence[str] = (),
    future: bool = False,
    native: bool = False,
    specific: bool = False,
    family: bool = False,
    ptx: bool = True,
    cmake: str | None = None,
) -> Plan:
    """The smallest architecture list for these machines, and without `cuda` the fewest CUDA versions too."""
    from cuwheel.report.plan import Plan
    from cuwheel.verdicts.planning import plans
    from cuwheel.verdicts.planning.plan import Wishes

    wishes = Wishes(future=future, native=native, specific=specific, family=family, ptx=ptx)
    made = plans.plan_for(machines, cuda, wishes, refine=refine, cmake=cmake)
    return Plan(jobs=made.jobs, unserved=made.unserved)


def plan_sizes(planned: Plan, like: str | Path) -> Plan:
    """A plan with the bytes that each job will need, predicted from an earlier wheel of the project."""
    from cuwheel.verdicts.planning import plans

    return replace(planned, jobs=plans.with_sizes(planned.jobs, survey_target(downloaded_if_pinned(like))))


def read_list(
    text: str,
    *machines: str | Path | Machine,
    refine: Refinement | None = None,
    spelling: str | None = None,
    cuda: Sequence[str] = (),
) -> Plan:
    """What an architecture list means that somebody else wrote, what it covers, and how it serves machines."""
    from cuwheel.report.plan import Plan
    from cuwheel.verdicts.planning import plans

    return Plan(
        jobs=(), unserved=(), reading=plans.explain_list(text, machines, cuda, refine=refine, spelling=spelling)
    )
