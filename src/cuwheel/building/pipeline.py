"""A build from its request to its result: here, or on a cluster."""

from __future__ import annotations

import shutil
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import gate, jobs
from cuwheel.building.steps import Steps
from cuwheel.building.values import BuildResult, MadeVariants, MadeWheel, MergedWheel
from cuwheel.changes.stamp import merge, variants
from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError
from cuwheel.support import system_calls
from cuwheel.support.files import sha256
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.building.request import BuildRequest
    from cuwheel.building.values import BuildContext, JobResult, WorkerSpan
    from cuwheel.changes.stamp.variants import VariantSet


# With `--variants`: variant wheels of those that a build put into its output folder.


def write_variants(order: BuildContext, done: Sequence[JobResult], merged: Sequence[MergedWheel]) -> MadeVariants:
    """Of the merged wheels where there are such, else of those of the jobs that passed the gate."""
    if order.table.merge:
        wheels = [each.wheel.path for each in merged if each.wheel]
    else:
        wheels = [job.wheel.path for job in done if job.wheel and job.outcome != "refused"]
    try:
        sets, findings = variants.write_all(list(dict.fromkeys(wheels)), order.request.output)
    except CuwheelError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return MadeVariants(reason=f"{error.message}{hint}")
    return MadeVariants(sets=sets, findings=(*findings, *_outranked(sets, wheels)))


def _outranked(sets: Sequence[VariantSet], wheels: Sequence[Path]) -> Iterator[Finding]:
    """A version with a label is later than the one without."""
    plain = {each for made in sets for each in made.plain}
    of_sets = {wheel.made_from for made in sets for wheel in made.wheels}
    labelled = [each.name for each in wheels if str(each) in of_sets - plain]
    if labelled:
        yield Finding(
            rule="variant-outranked",
            severity="note",
            message="an installer that finds the wheels with a CUDA label beside the variants takes those:"
            " their version is the later one",
            evidence=tuple(labelled),
            fix="cuwheel publish dist/*.whl --to index   (its channel variants has no wheel with a label)",
        )


# With `--merge`: the wheels of all CUDA versions as one for each Python.


def merge_wheels(order: BuildContext, done: Sequence[JobResult]) -> tuple[MergedWheel, ...]:
    return tuple(_merge_group(order, group) for group in _groups_by_python(done))


def _groups_by_python(done: Sequence[JobResult]) -> Iterator[list[JobResult]]:
    """By Python; Pythons that are served by the same wheels are one."""
    seen: set[tuple[str, ...]] = set()
    for python in dict.fromkeys(job.python for job in done):
        group = [job for job in done if job.python == python]
        wheels = tuple(str(job.wheel.path) if job.wheel else job.id for job in group)
        if wheels not in seen:
            seen.add(wheels)
            yield group


def _merge_group(order: BuildContext, group: Sequence[JobResult]) -> MergedWheel:
    ids = tuple(job.id for job in group)
    if lacking := [job.id for job in group if job.wheel is None or job.outcome == "refused"]:
        return MergedWheel(jobs=ids, reason=f"{', '.join(lacking)} made no wheel: see above")
    scratch = order.request.output / f".cuwheel-merge-{group[0].python}"
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
        return _checked(order, group, scratch)
    except CuwheelError as error:
        kept = "\n".join(f"kept: {job.wheel.path}" for job in group if job.wheel)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return MergedWheel(jobs=ids, reason=f"{error.message}{hint}\n{kept}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked(order: BuildContext, group: Sequence[JobResult], scratch: Path) -> MergedWheel:
    """Into the output folder by a rename, if the whole may leave the build too."""
    ids = tuple(job.id for job in group)
    made = merge.merge([job.wheel.path for job in group if job.wheel], scratch)
    found = survey(str(made), detail="containers")
    result = gate.examine_merged(found, order.table.gate)
    if not result.succeeded:
        return MergedWheel(jobs=ids, reason="the merged wheel did not pass the gate", findings=result.findings)
    made.chmod(0o644)
    place = system_calls.rename_over(made, order.request.output / made.name)
    planned = tuple(arch for job in group for arch in (*job.plan.archs, *job.plan.ptx))
    wheel = MadeWheel(survey=replace(found, target=str(place)), sha256=sha256(place), planned=planned)
    return MergedWheel(jobs=ids, wheel=wheel, findings=result.findings)


def build(request: BuildRequest, caller: Mapping[str, str]) -> BuildResult:
    """All of it; with `dry_run` as far as can be told without doing anything. `caller`: the environment."""
    began, now = time.monotonic(), datetime.now(timezone.utc)
    steps = Steps(request)
    spans: tuple[WorkerSpan, ...] = ()
    if request.cluster and not request.dry_run:
        made, spans = _on_cluster(steps)
    else:
        steps.decide(caller)
        made = steps.foreseen() if request.dry_run else steps.execute()
    merged = merge_wheels(steps.order, made) if steps.table.merge and not request.dry_run else ()
    wanted = steps.table.variants and not request.dry_run
    return BuildResult(
        order=steps.order,
        configuration=steps.known.configuration,
        recipe=steps.known.recipe,
        jobs=made,
        merged=merged,
        variants=write_variants(steps.order, made, merged) if wanted else MadeVariants(),
        unserved=steps.unserved,
        findings=steps.findings,
        began=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        seconds=time.monotonic() - began,
        spans=spans,
    )


def _on_cluster(steps: Steps) -> tuple[tuple[JobResult, ...], tuple[WorkerSpan, ...]]:
    """The workers provide toolchains, interpreters and build tools; this machine needs none of them."""
    from cuwheel.building import on_cluster  # noqa: PLC0415 - of an extra

    steps.make_output()
    done = on_cluster.executed(steps, steps.plan(), jobs.pythons(steps.table, steps.project))
    steps.findings = (*steps.findings, *done.findings)
    return done.ordered(), tuple(done.spans)
