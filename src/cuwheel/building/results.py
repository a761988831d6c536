"""What became of a build: frozen values that the report shows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.building.gate_values import Listed
from cuwheel.building.job import Built, Job, Phase, Problem
from cuwheel.building.order import Order
from cuwheel.building.recipes import Recipe
from cuwheel.building.recording.calls import Record
from cuwheel.changes.stamp.variants import VariantSet
from cuwheel.device_code.libraries import Survey
from cuwheel.support.finding import Finding
from cuwheel.verdicts.planning import plan as plan_values

# `resumed`: an earlier run had made it. `refused`: made, and stopped by the gate. `skipped`: not begun; `reason` says
# why. `planned`: a dry run.
Outcome: TypeAlias = Literal["built", "resumed", "failed", "refused", "skipped", "planned"]


class MadeWheel(Struct, frozen=True, kw_only=True):
    """A wheel in its place. `planned`: the architectures that it was to have, machine code and PTX."""

    survey: Survey
    sha256: str
    planned: tuple[str, ...]

    @property
    def path(self) -> Path:
        return Path(self.survey.target)


class JobResult(Struct, frozen=True, kw_only=True):
    """What became of one wheel. `job` is None where there was no toolchain to make one for.

    `listed`: unplanned device code that was accepted. `problem`: why there is no wheel.
    """

    id: str
    python: str
    plan: plan_values.Job
    outcome: Outcome
    job: Job | None = None
    reason: str = ""
    built: Built | None = None
    record: Record | None = None
    phases: tuple[Phase, ...] = ()
    seconds: float = 0.0
    wheel: MadeWheel | None = None
    listed: tuple[Listed, ...] = ()
    findings: tuple[Finding, ...] = ()
    problem: Problem | None = None


class MergedWheel(Struct, frozen=True, kw_only=True):
    """One wheel merged from those of `jobs`; if there is none, `reason` says why."""

    jobs: tuple[str, ...]
    wheel: MadeWheel | None = None
    reason: str = ""
    findings: tuple[Finding, ...] = ()


class MadeVariants(Struct, frozen=True, kw_only=True):
    """With `--variants`: what was written of all wheels together; if that failed, `reason` says why."""

    sets: tuple[VariantSet, ...] = ()
    reason: str = ""
    findings: tuple[Finding, ...] = ()


class WorkerSpan(Struct, frozen=True, kw_only=True):
    """What a worker of a cluster did, in seconds since the build began."""

    worker: str
    name: str
    began: float
    ended: float
    failed: bool = False


class BuildResult(Struct, frozen=True, kw_only=True):
    """`configuration`: the file that it was read from. `seconds`: of the whole, and `began` when."""

    order: Order
    configuration: Path | None
    recipe: Recipe | None
    jobs: tuple[JobResult, ...]
    merged: tuple[MergedWheel, ...]
    variants: MadeVariants
    unserved: tuple[plan_values.NotServed, ...]
    findings: tuple[Finding, ...]
    began: str
    seconds: float
    spans: tuple[WorkerSpan, ...] = ()
