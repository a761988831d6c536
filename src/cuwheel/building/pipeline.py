"""A build from its request to its answer: decided, then carried out here or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import jobs, recipes
from cuwheel.building.answer import Build, Recipe, Source, WorkerSpan
from cuwheel.building.decide import decide
from cuwheel.building.jobs import job_answer
from cuwheel.building.values import BuildPlan, BuildResult, JobResult
from cuwheel.version import __version__

if TYPE_CHECKING:
    from cuwheel.building.request import BuildRequest


def build(request: BuildRequest, caller: Mapping[str, str]) -> BuildResult:
    """All of it; with `dry_run` as far as can be told without doing anything. `caller`: the environment."""
    began, now = time.monotonic(), datetime.now(timezone.utc)
    plan = decide(request, caller)
    workers: tuple[WorkerSpan, ...] = ()
    if request.dry_run:
        done = (*(JobResult(answer=job_answer(job, "planned"), job=job) for job in plan.jobs), *plan.failed)
    elif request.cluster:
        from cuwheel.building import on_cluster  # noqa: PLC0415 - of an extra

        work = on_cluster.run_on_cluster(plan, jobs.pythons(plan.table, plan.project))
        plan = replace(plan, findings=(*plan.findings, *work.findings))
        done, workers = work.ordered(), tuple(work.spans)
    else:
        from cuwheel.building import act  # noqa: PLC0415 - a dry run does without half of the house

        done = act.execute(plan)
    answer = replace(_answer(plan, done), began=f"{now:%Y-%m-%dT%H:%M:%SZ}", workers=workers)
    if not request.dry_run and (plan.table.merge or plan.table.variants):
        from cuwheel.building import act  # noqa: PLC0415

        if plan.table.merge:
            answer = replace(answer, merged=act.merge_wheels(plan, answer.jobs))
        if plan.table.variants:
            answer = act.with_variants(plan, answer)
    return BuildResult(plan=plan, jobs=done, answer=replace(answer, seconds=time.monotonic() - began))


def _answer(plan: BuildPlan, done: Sequence[JobResult]) -> Build:
    tree, project, recipe = plan.tree, plan.project, plan.recipe
    return Build(
        cuwheel=__version__,
        source=Source(
            asked=tree.asked,
            name=project.name,
            version=project.version,
            sha256=tree.sha256,
            files=len(tree.files),
            commit=tree.commit,
        ),
        configuration=(str(plan.configuration),) if plan.configuration else (),
        recipe=Recipe(
            name=recipe.name,
            why=recipe.why,
            settings=recipes.in_effect(recipe, plan.table),
            tried=tuple(
                f"{each.version} for {' '.join(each.archs)} with CUDA {each.cuda}"
                f"{f' and torch {each.torch}' if each.torch else ''}: {each.outcome}"
                for each in recipe.tried
            ),
        )
        if recipe
        else None,
        dry_run=plan.request.dry_run,
        output=str(plan.request.output),
        jobs=tuple(each.answer for each in done),
        unserved=plan.unserved,
        findings=plan.findings,
    )
