"""A build from its request to its result: here, or on a cluster."""

from __future__ import annotations

import shutil
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import gate, jobs, recipes
from cuwheel.building.answer import Build, Merged, Recipe, Source, wheel_of
from cuwheel.building.steps import Steps, read_context
from cuwheel.building.values import BuildContext, BuildResult
from cuwheel.changes.stamp import stamp, variants
from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError
from cuwheel.support import system_calls
from cuwheel.support.files import sha256
from cuwheel.support.finding import finding
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.building.answer import Job, WorkerSpan
    from cuwheel.building.request import BuildRequest
    from cuwheel.building.tables import Table


def build(request: BuildRequest, caller: Mapping[str, str]) -> BuildResult:
    """All of it; with `dry_run` as far as can be told without doing anything. `caller`: the environment."""
    began, now = time.monotonic(), datetime.now(timezone.utc)
    steps = Steps(read_context(request))
    workers: tuple[WorkerSpan, ...] = ()
    if request.cluster and not request.dry_run:
        # The workers provide toolchains, interpreters and build tools; this machine needs none of them.
        from cuwheel.building import on_cluster  # noqa: PLC0415 - of an extra

        steps.make_output()
        work = on_cluster.run_on_cluster(steps, steps.plan(), jobs.pythons(steps.context.table, steps.context.project))
        steps.findings = (*steps.findings, *work.findings)
        done, workers = work.ordered(), tuple(work.spans)
    else:
        steps.decide(caller)
        done = steps.foreseen() if request.dry_run else steps.execute()
    context = steps.context
    tree, project = context.tree, context.project
    made = tuple(each.answer for each in done)
    answer = Build(
        cuwheel=__version__,
        source=Source(
            asked=tree.asked,
            name=project.name,
            version=project.version,
            sha256=tree.sha256,
            files=len(tree.files),
            commit=tree.commit,
        ),
        configuration=(str(context.configuration),) if context.configuration else (),
        recipe=_recipe_used(context.recipe, context.table) if context.recipe else None,
        began=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        dry_run=request.dry_run,
        output=str(request.output),
        jobs=made,
        merged=merge_wheels(context, made) if context.table.merge and not request.dry_run else (),
        unserved=steps.unserved,
        findings=steps.findings,
        workers=workers,
    )
    if context.table.variants and not request.dry_run:
        answer = with_variants(context, answer)
    return BuildResult(answer=replace(answer, seconds=time.monotonic() - began), context=context, jobs=done)


def _recipe_used(recipe: recipes.Recipe, table: Table) -> Recipe:
    tried = (
        f"{each.version} for {' '.join(each.archs)} with CUDA {each.cuda}"
        + (f" and torch {each.torch}" if each.torch else "")
        + f": {each.outcome}"
        for each in recipe.tried
    )
    return Recipe(name=recipe.name, why=recipe.why, settings=recipes.in_effect(recipe, table), tried=tuple(tried))


# With `merge`: the wheels of all CUDA versions as one for each Python.


def merge_wheels(context: BuildContext, done: Sequence[Job]) -> tuple[Merged, ...]:
    """Pythons that are served by the same wheels are one."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for python in dict.fromkeys(job.python for job in done):
        group = [job for job in done if job.python == python]
        groups.setdefault(tuple(job.wheel.path if job.wheel else job.id for job in group), group)
    return tuple(_merge_group(context, group) for group in groups.values())


def _merge_group(context: BuildContext, group: Sequence[Job]) -> Merged:
    """Into the output folder by a rename, if the whole may leave the build too."""
    ids = tuple(job.id for job in group)
    if lacking := [job.id for job in group if job.wheel is None or job.outcome == "refused"]:
        return Merged(jobs=ids, reason=f"{', '.join(lacking)} made no wheel: see above")
    wheels = [job.wheel.file for job in group if job.wheel]
    scratch = context.request.output / f".cuwheel-merge-{group[0].python}"
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
        made = stamp.merge_wheels(wheels, scratch)
        found = survey(str(made), detail="containers")
        result = gate.examine_merged(found, context.table.gate)
        if not result.succeeded:
            return Merged(jobs=ids, reason="the merged wheel did not pass the gate", findings=result.findings)
        made.chmod(0o644)
        place = system_calls.rename_over(made, context.request.output / made.name)
        planned = {arch for job in group for arch in (*job.archs, *job.ptx)}
        wheel = wheel_of(replace(found, target=str(place)), sha256(place), planned)
        return Merged(jobs=ids, wheel=wheel, findings=result.findings)
    except CuwheelError as error:
        kept = "\n".join(f"kept: {each}" for each in wheels)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Merged(jobs=ids, reason=f"{error.message}{hint}\n{kept}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def with_variants(context: BuildContext, answer: Build) -> Build:
    """With `variants`: of the merged wheels where there are such, else of those of the jobs that passed the gate."""
    if context.table.merge:
        made = [each.wheel for each in answer.merged if each.wheel]
    else:
        made = [job.wheel for job in answer.jobs if job.wheel and job.outcome != "refused"]
    wheels = list(dict.fromkeys(each.file for each in made))
    try:
        sets, findings = variants.write_all(wheels, context.request.output)
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
