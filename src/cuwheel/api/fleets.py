"""What runs where, and what to build for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api.binaries import on_disk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.planning.values import Job
    from cuwheel.report.check import Check
    from cuwheel.report.plan import Plan


def check(
    *targets: str | Path,
    on: Sequence[str | Path | Machine] = (),
    refine: Refinement | None = None,
    env: Path | None = None,
    platform: str | None = None,
) -> Check:
    """Whether wheels, libraries or installed distributions run on machines, how, and why not.

    `on`: GPU names, capabilities, machine profiles, fleet files or `Machine` values; without one, this machine.
    `env`: the Python environment that the packages are in, or come into: its torch and variables are the machines'.
    """
    from cuwheel.compat import matrix
    from cuwheel.inspection.survey import survey
    from cuwheel.machine import named
    from cuwheel.report.check import Check, targets_of

    machines = named.machines(on, refine) if on else ()
    if env or not on:
        from cuwheel.machine import probe

        machines = probe.within(env, machines) if on and env else named.here(probe.probe(env), refine)
    found = [survey(on_disk(target, platform), env=env, detail="containers") for target in targets]
    return Check(
        targets=targets_of(found),
        machines=machines,
        verdicts=tuple(verdict for each in found for verdict in matrix.judge_all(each, machines)),
    )


def plan(  # noqa: PLR0913 - one keyword for each wish
    *machines: str | Path | Machine,
    refine: Refinement | None = None,
    cuda: Sequence[str] = (),
    future: bool = False,
    native: bool = False,
    specific: bool = False,
    family: bool = False,
    ptx: bool = True,
    like: str | Path | None = None,
    cmake: str | None = None,
) -> Plan:
    """The smallest architecture list for these machines, and without `cuda` the fewest CUDA versions too."""
    from cuwheel.errors import CuwheelError, UsageError
    from cuwheel.planning import planner, settings
    from cuwheel.report.plan import Plan

    errors: list[CuwheelError] = []
    wishes = settings.Wishes(future=future, native=native, specific=specific, family=family, ptx=ptx)
    rows = settings.find_toolkits(cuda, errors)
    version = settings.cmake_version(cmake, errors)
    found = settings.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    if not found and not errors:
        errors.append(UsageError("there is no machine to plan for", hint="cuwheel plan --for h100,l40"))
    conflicts = tuple(settings.conflicts(wishes))
    made = planner.make(found, rows, settings.compatible(wishes), cmake=version)
    if errors or conflicts:
        settings.refuse(errors, [*conflicts, *planner.contradictions(made.unserved)])
    jobs = _with_sizes(made.jobs, like) if like else made.jobs
    return Plan(jobs=jobs, unserved=made.unserved)


def _with_sizes(jobs: tuple[Job, ...], like: str | Path) -> tuple[Job, ...]:
    from dataclasses import replace

    from cuwheel.inspection.survey import survey
    from cuwheel.planning import sizes

    found = survey(on_disk(like, None))
    return tuple(replace(job, size=sizes.predict(found, job.cuda, [*job.archs, *job.ptx])) for job in jobs)


def read_list(
    text: str,
    *machines: str | Path | Machine,
    refine: Refinement | None = None,
    spelling: str | None = None,
    cuda: Sequence[str] = (),
) -> Plan:
    """What an architecture list means that somebody else wrote, what it covers, and how it serves machines."""
    from cuwheel.errors import CuwheelError, UsageError
    from cuwheel.planning import planner, reading, settings
    from cuwheel.report.plan import Plan

    errors: list[CuwheelError] = []
    rows = settings.find_toolkits(cuda, errors)
    if len(rows) > 1:
        errors.append(UsageError("a list is read for one CUDA version at a time"))
    found = settings.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    settings.refuse(errors, ())
    toolkit = rows[0] if rows else None
    return Plan(jobs=(), unserved=(), reading=reading.explain(text, found, spelling=spelling, toolkit=toolkit))
