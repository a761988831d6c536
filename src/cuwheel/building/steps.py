"""The steps of a build on one machine: source, configuration, plan, toolchains, jobs, and what becomes of each."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import config, environment, job_run, jobs, recipes, shares, sources, workspace
from cuwheel.building.answer import bare_answer
from cuwheel.building.environment import PackageSource, torch_release
from cuwheel.building.jobs import job_answer
from cuwheel.building.values import BuildContext, JobResult, Problem
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError, UsageError
from cuwheel.facts import toolkits
from cuwheel.machine import fleet
from cuwheel.support import log
from cuwheel.toolchains import lock, provide
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.request import toolkit_from
from cuwheel.toolchains.store import open_store
from cuwheel.verdicts.planning import plans
from cuwheel.verdicts.planning.plan import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.building.request import BuildRequest
    from cuwheel.building.values import DecidedJob
    from cuwheel.support.finding import Finding
    from cuwheel.toolchains.request import ToolchainRequest
    from cuwheel.toolchains.toolchain import Toolchain
    from cuwheel.verdicts.planning.plan import Job as PlanJob
    from cuwheel.verdicts.planning.plan import NotServed


def read_context(request: BuildRequest) -> BuildContext:
    """What a request means for its source: the files, what they say of themselves, and the configuration."""
    asked, store = str(request.source), open_store(request.cache)
    tree = sources.obtain_source(asked, store.folder, offline=request.offline, without=[request.output, store.folder])
    found = config.find_configuration(tree.folder, request.config, request.overrides)
    table = found.table
    project = sources.read_project(*jobs.below(tree, table.subdirectory), table.backend)
    recipe = recipes.find_recipe(project.name, project.version) if table.recipe else None
    if recipe:
        table = config.over_recipe(recipe.settings, found)
        project = sources.read_project(*jobs.below(tree, table.subdirectory), table.backend)
        used = "; ".join(recipes.in_effect(recipe, table)) or "nothing that you have not set yourself"
        log.info("using the recipe for %s: %s", recipe.name, used)
    if table.gate.device_code and not sources.mentions_cuda(tree.folder, tree.files):
        raise MalformedError(
            asked,
            "has no CUDA code: no .cu file, and no build file that mentions CUDA",
            hint="without device code you do not need cuwheel: pip wheel .",
        )
    return BuildContext(
        request=request,
        store=store,
        tree=tree,
        table=table,
        project=project,
        configuration=found.path,
        recipe=recipe,
    )


class Steps:
    """`decide` looks, and provides toolchains; what it found is what `execute` does. `context` grows with the steps."""

    def __init__(self, context: BuildContext) -> None:
        self.context = context
        self.jobs: list[DecidedJob] = []
        self.divided: set[str] = set()  # jobs that are compiled in shares though nobody said so
        self.failed: list[JobResult] = []
        self.placed = job_run.PlacedWheels()
        self.unserved: tuple[NotServed, ...] = ()
        self.findings: tuple[Finding, ...] = tuple(sources.source_findings(context.tree))

    def decide(self, caller: Mapping[str, str]) -> None:
        _refuse_unwritable(self.context.request.output)
        planned = self.plan()
        self.prepare(planned, jobs.pythons(self.context.table, self.context.project), caller)

    def prepare(self, planned: Sequence[PlanJob], wanted: Sequence[str], caller: Mapping[str, str]) -> None:
        """The jobs of a plan on this machine. `wanted`: versions of Python."""
        request = self.context.request
        if not request.dry_run:
            environment.require_tools(repairs=self.context.table.repair.enabled is not False)
        images = "container" in request.providers  # which have interpreters of their own
        interpreters = {} if images else jobs.interpreters(wanted)  # before a toolkit is downloaded for nothing
        toolchains = self._toolchains(planned, wanted)
        if images and not all(each.prefix for each in toolchains.values()):
            interpreters = jobs.interpreters(wanted)
        if not request.dry_run:
            self.context = replace(self.context, images=jobs.image_paths(toolchains.values()))
        context = self.context
        for plan in planned:
            if (toolchain := toolchains.get(plan.cuda)) is None:
                continue
            for python in wanted:
                found = None if toolchain.prefix else interpreters[python]
                made = jobs.make_job(context, plan, toolchain, python, found, caller)
                if request.shares is None and not toolchain.prefix:
                    asked = dataclasses.replace(request, shares=True)  # noqa: TID251 - a request
                    divided = jobs.make_job(replace(context, request=asked), plan, toolchain, python, found, caller)
                    made = self._chosen(made, divided)
                self.jobs.append(made)
        log.info("%s: %s", context.project.name, ", ".join(job.id for job in self.jobs))

    def plan(self) -> tuple[PlanJob, ...]:
        table, request = self.context.table, self.context.request
        if not table.for_:
            raise UsageError(
                "no GPUs were given, neither on the command line nor in a configuration",
                hint='cuwheel build --for h100,l40   (or in pyproject.toml: [tool.cuwheel] for = ["h100", "l40"])',
            )
        # A cluster's workers may have other processors. A donor is compiled for a list that it is given; `all` asks for
        # every architecture, not for every machine.
        elsewhere = request.cluster or request.fit or ALL in map(str.lower, table.for_)
        made = plans.plan_for(
            [self._machine(each) for each in table.for_],
            table.cuda,
            table.plan,
            # The release that will compile it, as far as its requirements tell: it refuses what it does not know.
            torch=torch_release((*table.requires, *self.context.project.requires)),
            built_on=None if elsewhere else fleet.cpu_here(),
        )
        self.unserved = made.unserved
        planned = tuple(job for job in made.jobs if job.archs or job.ptx)
        if not planned:
            reasons = "; ".join(f"{each.machine}: {', '.join(each.why)}" for each in made.unserved)
            fixes = dict.fromkeys(each.fix for each in made.unserved if each.fix)
            hint = "; ".join(fixes) or "cuwheel plan shows what would"
            raise UsageError(f"no wheel can serve these machines: {reasons}", hint=hint)
        self._choose_names([job.cuda for job in planned])
        return planned

    def _machine(self, name: str) -> str:
        """A fleet file is named from where the configuration is, as every file in one is."""
        configuration = self.context.configuration
        near = (configuration.parent if configuration else self.context.tree.folder) / name
        return str(near) if near.is_file() and not Path(name).is_file() else name

    def _choose_names(self, cudas: Sequence[str]) -> None:
        """Each wheel its own: by local versions where nobody said how."""
        table = self.context.table
        if table.merge and len(set(cudas)) == 1:
            raise UsageError(
                "merge joins the wheels of several CUDA versions, but only one was given", hint="--cuda A,B"
            )
        chosen = jobs.choose_naming(table, cudas)
        if table.naming is None and chosen == "local":
            self.findings = (*self.findings, jobs.naming_finding(cudas))
        self.context = replace(self.context, table=replace(table, naming=chosen))
        if jobs.names_collide(self.context.table, cudas):
            raise UsageError(
                f"the wheels for CUDA {', '.join(cudas)} would have the same name (naming is {chosen!r})",
                hint="--naming local gives each its own name: 1.0+cu130",
            )

    def _toolchains(self, planned: Sequence[PlanJob], pythons: Sequence[str]) -> dict[str, Toolchain]:
        """One that cannot be had fails its jobs, and none that can be had ends the build."""
        found: dict[str, Toolchain] = {}
        errors: dict[str, CuwheelError] = {}
        for plan in planned:
            try:
                wanted = self._toolkit(plan.cuda)
                found[plan.cuda] = provide.foresee(wanted) if self.context.request.dry_run else provide.provide(wanted)
            except CuwheelError as error:
                errors[plan.cuda] = error
        if not found:
            raise next(iter(errors.values()))
        for plan in [each for each in planned if each.cuda in errors]:
            problem = Problem(phase="toolchain", what=errors[plan.cuda].message, hint=errors[plan.cuda].hint)
            for python in pythons:
                answer = bare_answer(jobs.job_name(plan.cuda, python), plan, python, "failed")
                self.failed.append(JobResult(answer=answer, problem=problem))
        return found

    def _toolkit(self, cuda: str) -> ToolchainRequest:
        table, request = self.context.table, self.context.request
        named = [name for name in table.cuda if toolkits.find_toolkit(name).version == cuda]
        extra = ["torch"] if self.context.project.backend == "torch" else []
        if request.fit:  # whole toolkits have it, and with it CUB includes more: code of the wheel to fit
            extra.append("nvtx")
        version = named[0] if named else cuda  # as requested: a patch release is kept
        return toolkit_from(request, version, (*table.components, *extra))

    def _chosen(self, whole: DecidedJob, divided: DecidedJob) -> DecidedJob:
        """The job by shares, where the cache has most of them."""
        parts = shares.shares_of_plan(whole.plan)
        kept = [each.name for each in parts if shares.cached_share(each, divided, self.context)]
        choice = shares.choose_here(self.context.request, [each.name for each in parts], kept)
        if not choice.by_shares:
            return whole
        self.divided.add(divided.id)
        return replace(divided, notes=(*divided.notes, *choice.findings))

    def foreseen(self) -> tuple[JobResult, ...]:
        return (*(JobResult(answer=job_answer(job, "planned"), job=job) for job in self.jobs), *self.failed)

    def make_output(self) -> None:
        output = self.context.request.output
        _refuse_unwritable(output)
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableError.from_os(error, output, hint="--output FOLDER") from error

    def execute(self) -> tuple[JobResult, ...]:
        """Builds, for each CUDA version the oldest Python first: its wheel may serve the others."""
        self.make_output()
        first: dict[str, DecidedJob] = {}
        for job in self.jobs:
            first.setdefault(job.cuda, job)
        done = self._together(list(first.values()))
        rest = [job for job in self.jobs if job.id not in done]
        served = {}
        for job in rest:
            wheel = done[first[job.cuda].id].answer.wheel
            if wheel and jobs.serves(wheel.file.name, job.python):
                reason = f"{wheel.file.name} serves Python {job.python} too"
                answer = replace(job_answer(job, "skipped"), reason=reason, wheel=wheel)
                served[job.id] = JobResult(answer=answer, job=job)
        done |= served
        done |= self._together([job for job in rest if job.id not in served])
        return (*(done[job.id] for job in self.jobs), *self.failed)

    def _together(self, wanted: Sequence[DecidedJob]) -> dict[str, JobResult]:
        at_once = self.context.request.at_once
        if at_once <= 1 or len(wanted) <= 1:
            return {job.id: self.one(job) for job in wanted}
        with ThreadPoolExecutor(at_once) as pool:
            try:
                return dict(zip([job.id for job in wanted], pool.map(self.one, wanted), strict=True))
            except BaseException:  # an interrupt is meant for the builds
                pool.shutdown(wait=False, cancel_futures=True)
                for job in wanted:
                    workspace.end_leftovers(job.folder)
                raise

    def requirements(self, job: DecidedJob) -> PackageSource:
        """Python's packages: of the lock where it knows them, to be written down, or whatever the index has."""
        request, toolkit = self.context.request, job.toolchain.toolkit
        supply = Supply(store=self.context.store, offline=request.offline, base=request.fetched)
        if request.locked or request.fetched:
            found = lock.requirements_for(toolkit, job.python, request.fetched, request.locked, offline=request.offline)
            return PackageSource(supply=supply, locked=found)
        return PackageSource(supply=supply, kept=request.lock is not None)

    def one(self, job: DecidedJob) -> JobResult:
        context = self.context
        log.info("%s: started", job.id)
        build = shares.build_by_shares if context.request.shares or job.id in self.divided else job_run.build_job
        with job_run.execute_job(job, context, self.requirements(job), build) as done:
            made = job_run.finish_job(context, job, done, self.placed)
        if context.request.lock and done.requirements:
            used = lock.requirements(job.toolchain.toolkit, job.python, done.requirements)
            lock.update(context.request.lock, used)
        took = "" if made.answer.outcome == "resumed" else f" in {made.answer.seconds:.0f} s"
        log.info("%s: %s%s", job.id, made.answer.outcome, took)
        return made


def _refuse_unwritable(folder: Path) -> None:
    """Before an hour of compiling, not after it."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if not existing.is_dir():
        raise UnreadableError(existing, "is not a folder, so wheels cannot be written there", hint="--output FOLDER")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UnreadableError(existing, "is not writable, so wheels cannot be written there", hint="--output FOLDER")
