"""Plans for machines and CUDA versions as people name them: all that is wrong with the words is said at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import CuwheelError, UsageError
from cuwheel.verdicts.planning import planner, reading, settings, sizes
from cuwheel.verdicts.planning.plan import NotServed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.device_code.libraries import Survey
    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.verdicts.planning.plan import Job, Reading
    from cuwheel.verdicts.planning.planner import Plan
    from cuwheel.verdicts.planning.settings import Wishes


def make(
    machines: Sequence[str | Path | Machine],
    cuda: Sequence[str],
    wishes: Wishes,
    *,
    refine: Refinement | None = None,
    cmake: str | None = None,
    torch: str | None = None,
    built_on: str | None = None,
) -> Plan:
    """The smallest architecture list for these machines, and without `cuda` the fewest CUDA versions too.

    `torch`: the release that a build compiles with, where it is known. `built_on`: the processor that compiles; what
    it makes runs on no other, whatever the GPU.
    """
    errors: list[CuwheelError] = []
    rows = settings.find_toolkits(cuda, errors)
    version = settings.cmake_version(cmake, errors)
    found = settings.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    if not found and not errors:
        errors.append(UsageError("no machine to plan for was given", hint="cuwheel plan --for h100,l40"))
    conflicts = tuple(settings.conflicts(wishes))
    foreign = [each for each in found if built_on and each.cpu not in (None, built_on)]
    fitting = [each for each in found if each not in foreign]
    made = planner.make(fitting, rows, settings.compatible(wishes), cmake=version, torch=torch)
    if errors or conflicts:
        settings.refuse(errors, [*conflicts, *planner.contradictions(made.unserved)])
    return replace(made, unserved=(*made.unserved, *(_for_another_processor(each, built_on) for each in foreign)))


def _for_another_processor(machine: Machine, here: str | None) -> NotServed:
    where = "the Jetson itself" if machine.runs_l4t else f"a machine with {machine.cpu}"
    return NotServed(
        machine=machine.name,
        count=machine.count,
        capability=machine.capability,
        why=(f"its processor is {machine.cpu}, and what is built here is for {here}",),
        fix=f"build it on {where}",
    )


def with_sizes(jobs: Sequence[Job], like: Survey) -> tuple[Job, ...]:
    """`like`: an earlier wheel, from whose bytes the new ones are predicted."""
    return tuple(replace(job, size=sizes.predict(like, job.cuda, [*job.archs, *job.ptx])) for job in jobs)


def read(
    text: str,
    machines: Sequence[str | Path | Machine],
    cuda: Sequence[str],
    *,
    refine: Refinement | None = None,
    spelling: str | None = None,
) -> Reading:
    """What an architecture list means that somebody else wrote, what it covers, and how it serves machines."""
    errors: list[CuwheelError] = []
    rows = settings.find_toolkits(cuda, errors)
    if len(rows) > 1:
        errors.append(UsageError("--read takes one CUDA version at a time"))
    found = settings.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    settings.refuse(errors, ())
    return reading.explain(text, found, spelling=spelling, toolkit=rows[0] if rows else None)
