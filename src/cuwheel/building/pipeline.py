"""A build from its request to its result: here, or on a cluster."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cuwheel.building import jobs, merging, variants
from cuwheel.building.steps import Steps
from cuwheel.building.values import BuildResult, MadeVariants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.building.request import BuildRequest
    from cuwheel.building.values import JobResult, WorkerSpan


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
    merged = merging.merged(steps.order, made) if steps.table.merge and not request.dry_run else ()
    wanted = steps.table.variants and not request.dry_run
    return BuildResult(
        order=steps.order,
        configuration=steps.known.configuration,
        recipe=steps.known.recipe,
        jobs=made,
        merged=merged,
        variants=variants.written(steps.order, made, merged) if wanted else MadeVariants(),
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
