"""The jobs of a plan, built on this machine; then what is made of all their wheels: merged ones, variants."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import gate, job_run, jobs, shares
from cuwheel.building.answer import Build, Job, Merged, wheel_of
from cuwheel.building.decide import refuse_unwritable
from cuwheel.building.environment import PackageSource
from cuwheel.building.jobs import job_answer
from cuwheel.building.values import BuildPlan, DecidedJob, JobResult
from cuwheel.changes.stamp import stamp, variants
from cuwheel.device_code.survey import survey
from cuwheel.support import log, system_calls
from cuwheel.support.files import sha256
from cuwheel.support.finding import finding
from cuwheel.toolchains import lock
from cuwheel.toolchains.archives import Supply
from cuwheel_core.errors import CuwheelError, UnreadableError

if TYPE_CHECKING:
    from cuwheel.building.job_run import PlacedWheels


def make_output(folder: Path) -> None:
    refuse_unwritable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, folder, hint="--output FOLDER") from error


def execute(plan: BuildPlan) -> tuple[JobResult, ...]:
    """All jobs, for each CUDA version the oldest Python first: its wheel may serve the others."""
    make_output(plan.request.output)
    placed = job_run.PlacedWheels()
    first: dict[str, DecidedJob] = {}
    for job in plan.jobs:
        first.setdefault(job.cuda, job)
    done = {job.id: build_one(plan, job, placed) for job in first.values()}
    rest = []
    for job in [each for each in plan.jobs if each.id not in done]:
        wheel = done[first[job.cuda].id].answer.wheel
        if wheel and jobs.serves(wheel.file.name, job.python):
            reason = f"{wheel.file.name} serves Python {job.python} too"
            done[job.id] = JobResult(answer=replace(job_answer(job, "skipped"), reason=reason, wheel=wheel), job=job)
        else:
            rest.append(job)
    done |= {job.id: build_one(plan, job, placed) for job in rest}
    return (*(done[job.id] for job in plan.jobs), *plan.failed)


def build_one(plan: BuildPlan, job: DecidedJob, placed: PlacedWheels) -> JobResult:
    """One job, up to its wheel in the output folder."""
    log.info("%s: started", job.id)
    build = shares.build_by_shares if job.by_shares else job_run.build_job
    with job_run.execute_job(job, plan, package_source(plan, job), build) as done:
        made = job_run.finish_job(plan, job, done, placed)
    if plan.request.lock and done.requirements:
        used = lock.requirements(job.toolchain.toolkit, job.python, done.requirements)
        lock.update(plan.request.lock, used)
    took = "" if made.answer.outcome == "resumed" else f" in {made.answer.seconds:.0f} s"
    log.info("%s: %s%s", job.id, made.answer.outcome, took)
    return made


def package_source(plan: BuildPlan, job: DecidedJob) -> PackageSource:
    """Python's packages: of the lock where it knows them, to be written down, or whatever the index has."""
    request, toolkit = plan.request, job.toolchain.toolkit
    supply = Supply(store=plan.store, offline=request.offline, base=request.fetched)
    if request.locked or request.fetched:
        found = lock.requirements_for(toolkit, job.python, request.fetched, request.locked, offline=request.offline)
        return PackageSource(supply=supply, locked=found)
    return PackageSource(supply=supply, kept=request.lock is not None)


# With `merge`: the wheels of all CUDA versions as one for each Python.


def merge_wheels(plan: BuildPlan, done: Sequence[Job]) -> tuple[Merged, ...]:
    """Pythons that are served by the same wheels are one."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for python in dict.fromkeys(job.python for job in done):
        group = [job for job in done if job.python == python]
        groups.setdefault(tuple(job.wheel.path if job.wheel else job.id for job in group), group)
    return tuple(_merge_group(plan, group) for group in groups.values())


def _merge_group(plan: BuildPlan, group: Sequence[Job]) -> Merged:
    """Into the output folder by a rename, if the whole may leave the build too."""
    ids = tuple(job.id for job in group)
    if lacking := [job.id for job in group if job.wheel is None or job.outcome == "refused"]:
        return Merged(jobs=ids, reason=f"{', '.join(lacking)} made no wheel: see above")
    wheels = [job.wheel.file for job in group if job.wheel]
    scratch = plan.request.output / f".cuwheel-merge-{group[0].python}"
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
        made = stamp.merge_wheels(wheels, scratch)
        found = survey(str(made), detail="containers")
        result = gate.examine_merged(found, plan.table.gate)
        if not result.succeeded:
            return Merged(jobs=ids, reason="the merged wheel did not pass the gate", findings=result.findings)
        made.chmod(0o644)
        place = system_calls.rename_over(made, plan.request.output / made.name)
        planned = {arch for job in group for arch in (*job.archs, *job.ptx)}
        wheel = wheel_of(replace(found, target=str(place)), sha256(place), planned)
        return Merged(jobs=ids, wheel=wheel, findings=result.findings)
    except CuwheelError as error:
        kept = "\n".join(f"kept: {each}" for each in wheels)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Merged(jobs=ids, reason=f"{error.message}{hint}\n{kept}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def with_variants(plan: BuildPlan, answer: Build) -> Build:
    """Puts variants, if asked to, beside the merged wheels, or beside those of the jobs that passed the gate."""
    if plan.table.merge:
        made = [each.wheel for each in answer.merged if each.wheel]
    else:
        made = [job.wheel for job in answer.jobs if job.wheel and job.outcome != "refused"]
    wheels = list(dict.fromkeys(each.file for each in made))
    try:
        sets, findings = variants.write_all(wheels, plan.request.output)
    except CuwheelError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return replace(answer, variants_failed=f"{error.message}{hint}")
    # A version with a label is later than the one without.
    plain = {each for made_set in sets for each in made_set.plain}
    of_sets = {wheel.made_from for made_set in sets for wheel in made_set.wheels}
    if labelled := [each.name for each in wheels if str(each) in of_sets - plain]:
        message = (
            "an installer that finds the wheels with a CUDA label beside the variants takes those:"
            " their version is the later one"
        )
        findings = (*findings, finding("variant-outranked", message, evidence=tuple(labelled)))
    return replace(answer, variants=sets, findings=(*answer.findings, *findings))
