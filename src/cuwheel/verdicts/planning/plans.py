"""Plans for machines and CUDA versions as people name them, and how large a job's libraries will be.

All that is wrong with the words is said at once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import CuwheelError, UsageError
from cuwheel.facts import toolkits, versions
from cuwheel.support import quoting
from cuwheel.support.wording import a_few, file_name
from cuwheel.verdicts.planning import plan, planner, reading
from cuwheel.verdicts.planning.plan import ArchSize, NotServed, Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cuwheel.device_code.libraries import Library, Survey
    from cuwheel.facts.arch import Arch
    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.verdicts.planning.plan import Job, Reading, Wishes
    from cuwheel.verdicts.planning.planner import Plan


# How large a job's libraries will be, going by a wheel that was built from the same sources.


def predict_size(survey: Survey, cuda: str, archs: Sequence[Arch]) -> Size:
    """The unpacked libraries with this list instead of theirs.

    A wheel may have one library for each CUDA version: those of the version nearest to `cuda` are taken.
    """
    libraries = _nearest([each for each in survey.libraries if each.device_code], cuda)
    if not libraries:
        raise UsageError(
            f"{file_name(survey.target)} has no device code, so its size says nothing about architectures",
            hint=quoting.here(["cuwheel", "inspect", survey.target]),
        )
    known = _bytes_by_arch(libraries)
    total = sum(each.size for each in libraries)
    other = total - sum(known.values())
    rows = tuple(_arch_size(arch, known) for arch in archs)
    return Size(
        bytes=other + sum(row.bytes for row in rows),
        other_bytes=other,
        archs=rows,
        like_bytes=total,
        libraries=tuple(each.path for each in libraries),
        method=_method_in_words(survey, libraries, rows),
    )


def _nearest(libraries: Sequence[Library], cuda: str) -> list[Library]:
    """The libraries of the toolkit nearest to `cuda`: of its major before others, then by release."""
    order = [row.version for row in toolkits.all_toolkits()]
    wanted = order.index(cuda)

    def distance(library: Library) -> tuple[bool, int]:
        found = [version for each in library.toolkits if (version := versions.minor(each)) in order]
        if not found:
            return False, 0  # nothing says otherwise
        return min((versions.major(each) != versions.major(cuda), abs(order.index(each) - wanted)) for each in found)

    best = min(map(distance, libraries), default=None)
    return [each for each in libraries if distance(each) == best]


def _bytes_by_arch(libraries: Iterable[Library]) -> Counter[Arch]:
    """Stored bytes of each architecture that was asked for.

    Relocatable machine code alone was not: CUDA's own libcudadevrt brings some for every architecture there is, and
    PTX for the newest of them. Other PTX stays relocatable where it was asked for: a device link makes none.
    """
    known: Counter[Arch] = Counter()
    for library in libraries:
        linked = {row.arch for row in library.device_code if row.linked}
        brought = {row.arch for row in library.device_code if row.kind == "cubin"} - linked
        unasked = {each.capability for each in brought} - {each.capability for each in linked}
        for row in library.device_code:
            own = not linked or row.arch in linked
            if (row.kind == "cubin" and own) or (row.kind == "ptx" and (own or row.arch.capability not in unasked)):
                known[row.arch] += row.bytes
    return known


def _arch_size(arch: Arch, known: Counter[Arch]) -> ArchSize:
    alike = [each for each in known if each.kind == arch.kind] or list(known)
    like = min(alike, key=lambda each: _unlikeness(each, arch))
    return ArchSize(arch=arch, bytes=known[like], like=like)


def _unlikeness(each: Arch, arch: Arch) -> tuple[bool, bool, int, bool]:
    return (
        each != arch,
        each.capability.major != arch.capability.major,
        abs(each.capability.number - arch.capability.number),
        each.suffix != arch.suffix,
    )


def _method_in_words(survey: Survey, libraries: Sequence[Library], rows: Sequence[ArchSize]) -> str:
    built = sorted({versions.minor(each) for library in libraries for each in library.toolkits}, key=versions.key)
    by = f", built by CUDA {', '.join(built)}" if built else ""
    named = a_few([file_name(library.path) for library in libraries], 3)
    guessed = [f"{row.arch} like {row.like}" for row in rows if row.arch != row.like]
    estimates = f"; not in it, estimated from the nearest: {', '.join(guessed)}" if guessed else ""
    return (
        f"unpacked size of {named} of {file_name(survey.target)}{by}, with the stored bytes of each architecture "
        f"of the list and everything else as it is{estimates}"
    )


def plan_for(
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
    rows = plan.find_toolkits(cuda, errors)
    version = plan.cmake_version(cmake, errors)
    found = plan.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    if not found and not errors:
        errors.append(UsageError("no machine to plan for was given", hint="cuwheel plan --for h100,l40"))
    conflicts = tuple(plan.conflicting_wishes(wishes))
    foreign = [each for each in found if built_on and each.cpu not in (None, built_on)]
    fitting = [each for each in found if each not in foreign]
    made = planner.make_plan(fitting, rows, plan.without_conflicts(wishes), cmake=version, torch=torch)
    if errors or conflicts:
        plan.raise_problems(errors, [*conflicts, *planner.contradictions(made.unserved)])
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
    return tuple(replace(job, size=predict_size(like, job.cuda, [*job.archs, *job.ptx])) for job in jobs)


def explain_list(
    text: str,
    machines: Sequence[str | Path | Machine],
    cuda: Sequence[str],
    *,
    refine: Refinement | None = None,
    spelling: str | None = None,
) -> Reading:
    """What an architecture list means that somebody else wrote, what it covers, and how it serves machines."""
    errors: list[CuwheelError] = []
    rows = plan.find_toolkits(cuda, errors)
    if len(rows) > 1:
        errors.append(UsageError("--read takes one CUDA version at a time"))
    found = plan.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    plan.raise_problems(errors, ())
    return reading.explain(text, found, spelling=spelling, toolkit=rows[0] if rows else None)
