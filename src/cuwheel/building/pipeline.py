"""A build from its request to its result: decided, then carried out here or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import jobs, recipes
from cuwheel.building.answer import Build, Recipe, Source, WorkerSpan
from cuwheel.building.decide import decide_jobs, plan_build, read_context, refuse_unwritable
from cuwheel.building.jobs import job_answer
from cuwheel.building.values import BuildResult, JobResult
from cuwheel.version import __version__

if TYPE_CHECKING:
    from cuwheel.building.request import BuildRequest


def build(request: BuildRequest, caller: Mapping[str, str]) -> BuildResult:
    """All of it; with `dry_run` as far as can be told without doing anything. `caller`: the environment."""
    began, now = time.monotonic(), datetime.now(timezone.utc)
    refuse_unwritable(request.output)
    context = read_context(request)
    plan = plan_build(context)
    pythons = jobs.pythons(context.table, context.project)
    workers: tuple[WorkerSpan, ...] = ()
    if request.dry_run:
        plan = decide_jobs(plan, pythons, caller)
        done = (*(JobResult(answer=job_answer(job, "planned"), job=job) for job in plan.jobs), *plan.failed)
    elif request.cluster:
        # The workers provide toolchains, interpreters and build tools; this machine needs none of them.
        from cuwheel.building import on_cluster  # noqa: PLC0415 - of an extra

        work = on_cluster.run_on_cluster(plan, pythons)
        plan = replace(plan, findings=(*plan.findings, *work.findings))
        done, workers = work.ordered(), tuple(work.spans)
    else:
        from cuwheel.building import act  # noqa: PLC0415 - a dry run does without half of the house

        plan = decide_jobs(plan, pythons, caller)
        done = act.execute(plan)
    context = plan.context
    tree, project, recipe = context.tree, context.project, context.recipe
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
        recipe=Recipe(
            name=recipe.name,
            why=recipe.why,
            settings=recipes.in_effect(recipe, context.table),
            tried=tuple(
                f"{each.version} for {' '.join(each.archs)} with CUDA {each.cuda}"
                f"{f' and torch {each.torch}' if each.torch else ''}: {each.outcome}"
                for each in recipe.tried
            ),
        )
        if recipe
        else None,
        began=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        dry_run=request.dry_run,
        output=str(request.output),
        jobs=tuple(each.answer for each in done),
        unserved=plan.unserved,
        findings=plan.findings,
        workers=workers,
    )
    if not request.dry_run and (context.table.merge or context.table.variants):
        from cuwheel.building import act  # noqa: PLC0415

        if context.table.merge:
            answer = replace(answer, merged=act.merge_wheels(context, answer.jobs))
        if context.table.variants:
            answer = act.with_variants(context, answer)
    return BuildResult(answer=replace(answer, seconds=time.monotonic() - began), context=context, jobs=done)
