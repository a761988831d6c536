"""From a request to the jobs of a build: source, configuration, architectures, toolchains. Nothing is built."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import config, crossing, environment, jobs, recipes, shares, sources
from cuwheel.building.answer import bare_answer
from cuwheel.building.environment import torch_release
from cuwheel.building.tables import BACKENDS
from cuwheel.building.values import BuildPlan, JobResult, Problem
from cuwheel.errors import UsageError
from cuwheel.facts import services
from cuwheel.machine import fleet
from cuwheel.support import log
from cuwheel.toolchains import provide
from cuwheel.toolchains.request import toolkit_from
from cuwheel.toolchains.store import open_store
from cuwheel.verdicts.planning import plans
from cuwheel.verdicts.planning.plan import ALL
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.facts import toolkits

if TYPE_CHECKING:
    from cuwheel.building.request import BuildRequest
    from cuwheel.toolchains.toolchain import Toolchain


def decide(request: BuildRequest, caller: Mapping[str, str]) -> BuildPlan:
    """The whole plan of a build, as far as it is decided here. `caller`: the environment."""
    refuse_unwritable(request.output)
    plan = plan_architectures(read_source(request))
    if request.cluster and not request.dry_run:
        return plan  # the workers provide toolchains, interpreters and build tools; this machine needs none of them
    return decide_jobs(plan, jobs.pythons(plan.table, plan.project), caller)


def read_source(request: BuildRequest) -> BuildPlan:
    """The plan of a request as far as its source goes: files, what they say of themselves, and the configuration."""
    asked, store = str(request.source), open_store(request.cache)
    tree = sources.obtain_source(asked, store.folder, offline=request.offline, without=[request.output, store.folder])
    found = config.find_configuration(tree.folder, request.config, request.overrides)
    table = found.table
    project = sources.read_project(*jobs.project_files(tree, table.subdirectory), table.backend)
    recipe = recipes.find_recipe(project.name, project.version) if table.recipe else None
    if recipe:
        before, table = table, config.over_recipe(recipe.settings, found)
        if (table.subdirectory, table.backend) != (before.subdirectory, before.backend):  # it is read otherwise
            project = sources.read_project(*jobs.project_files(tree, table.subdirectory), table.backend)
        used = "; ".join(recipes.in_effect(recipe, table)) or "nothing that you have not set yourself"
        log.info("using the recipe for %s: %s", recipe.name, used)
    if table.gate.device_code and not sources.mentions_cuda(tree.folder, tree.files):
        raise MalformedError(
            asked,
            "has no CUDA code: no .cu file, and no build file that mentions CUDA",
            hint="without device code you do not need cuwheel: pip wheel .",
        )
    return BuildPlan(
        request=request,
        store=store,
        tree=tree,
        table=table,
        project=project,
        configuration=found.path,
        recipe=recipe,
    )


def plan_architectures(plan: BuildPlan) -> BuildPlan:
    """Adds the architectures for each CUDA version, and how the wheels are named; no job is decided yet."""
    table, request = plan.table, plan.request
    if not table.for_:
        raise UsageError(
            "no GPUs were given, neither on the command line nor in a configuration",
            hint='cuwheel build --for h100,l40   (or in pyproject.toml: [tool.cuwheel] for = ["h100", "l40"])',
        )
    # A cluster's workers may have other processors. A donor is compiled for a list that it is given; `all` asks for
    # every architecture, not for every machine.
    cpu = table.cpu or fleet.cpu_here()
    if cpu != fleet.cpu_here():
        crossing.refuse_backend(plan.project.backend, cpu)
    any_processor = request.cluster or request.fit or ALL in map(str.lower, table.for_)
    names = config.machine_names(table, plan.configuration, plan.tree.folder)
    # What `ci` builds besides: the same configuration, on another runner.
    others = [("linux", each) for each in table.ci.cpus]
    if table.ci.windows:
        others.append(("windows", services.windows_runner()[0]))
    made = plans.plan_for(
        names,
        table.cuda,
        table.plan,
        # The release that will compile it, as far as its requirements tell: it refuses what it does not know.
        torch=torch_release((*table.requires, *plan.project.requires)),
        built_on=None if any_processor else (fleet.system_here(), cpu),
        one_list=bool(any_processor),
        elsewhere=others,
    )
    planned = tuple(job for job in made.jobs if job.archs or job.ptx)
    if not planned:
        reasons = "; ".join(f"{each.machine}: {', '.join(each.why)}" for each in made.unserved)
        fixes = dict.fromkeys(each.fix for each in made.unserved if each.fix)
        hint = "; ".join(fixes) or "cuwheel plan shows what would"
        raise UsageError(f"no wheel can serve these machines: {reasons}", hint=hint)
    cudas = [job.cuda for job in planned]
    if table.merge and len(set(cudas)) == 1:
        raise UsageError("merge joins the wheels of several CUDA versions, but only one was given", hint="--cuda A,B")
    named = replace(table, naming=jobs.choose_naming(table, cudas))
    if jobs.names_collide(named, cudas):
        raise UsageError(
            f"the wheels for CUDA {', '.join(cudas)} would have the same name (naming is {named.naming!r})",
            hint="--set naming=local gives each its own name: 1.0+cu130",
        )
    findings = list(sources.source_findings(plan.tree))
    if table.naming is None and named.naming == "local":
        findings.append(jobs.naming_finding(cudas))
    judged = () if request.fit or ALL in map(str.lower, table.for_) else fleet.machines_named(names)
    return replace(
        plan,
        table=named,
        machines=judged,
        planned=planned,
        unserved=made.unserved,
        findings=tuple(findings),
    )


def decide_jobs(plan: BuildPlan, pythons: Sequence[str], caller: Mapping[str, str]) -> BuildPlan:
    """The jobs of a plan on this machine, whose toolchains are provided, or with `dry_run` foreseen."""
    request = plan.request
    if not request.dry_run:
        environment.require_tools(repairs=plan.table.repair.enabled is not False)
    images = "container" in request.providers  # which have interpreters of their own
    interpreters, missing = ({}, {}) if images else jobs.interpreters(pythons)
    if not request.dry_run:
        jobs.refuse_without(missing.values())
    toolchains, failed = _toolchains(plan, pythons)
    if images and not all(each.prefix for each in toolchains.values()):
        interpreters, missing = jobs.interpreters(pythons)
    if not request.dry_run:
        jobs.refuse_without(missing.values())
        plan = replace(plan, images=jobs.image_paths(toolchains.values()))
    decided = []
    for planned in plan.planned:
        if (toolchain := toolchains.get(planned.cuda)) is None:
            continue
        for python in pythons:
            found = None if toolchain.prefix else interpreters.get(python)  # a dry run may do without
            make = partial(jobs.make_job, plan, planned, toolchain, python, found, caller)
            job = make(by_shares=bool(request.shares))
            if request.shares is None and not toolchain.prefix and shares.are_kept(plan):
                # By shares where the cache has most of them.
                divided = make(by_shares=True)
                parts = shares.shares_of_plan(job.plan)
                kept = [each.name for each in parts if shares.cached_share(each, divided, plan)]
                if about := shares.reason_for_shares(len(parts), len(kept)):
                    job = replace(divided, notes=(*divided.notes, about))
            if python in missing and not toolchain.prefix:
                job = replace(job, notes=(*job.notes, jobs.python_finding(python, missing[python])))
            decided.append(job)
    log.info("%s: %s", plan.project.name, ", ".join(job.id for job in decided))
    return replace(plan, jobs=tuple(decided), failed=failed)


def _toolchains(plan: BuildPlan, pythons: Sequence[str]) -> tuple[dict[str, Toolchain], tuple[JobResult, ...]]:
    """Provides the toolchains, by CUDA version.

    One that cannot be had fails its jobs; if none can be had, the build ends.
    """
    table, request = plan.table, plan.request
    components = [*table.components, *BACKENDS[plan.project.backend].components]
    if request.fit:
        components += request.fit.components
    glibc = crossing.glibc_wanted(table, plan.machines)
    sources_of = dataclasses.replace(request, cpu=table.cpu)  # noqa: TID251 - a request
    provided = provide.foresee if request.dry_run else provide.provide
    found: dict[str, Toolchain] = {}
    failed: list[JobResult] = []
    errors: list[CuwheelError] = []
    for planned in plan.planned:
        cuda = planned.cuda
        served = {each.machine for each in planned.coverage}
        l4t = crossing.l4t_wanted(cuda, (each for each in plan.machines if each.name in served))
        named = [name for name in table.cuda if toolkits.find_toolkit(name).version == cuda]
        try:
            # As requested: a patch release is kept.
            found[cuda] = provided(toolkit_from(sources_of, named[0] if named else cuda, components, glibc, l4t))
            crossing.tell_glibc(found[cuda], glibc)
        except CuwheelError as error:
            errors.append(error)
            problem = Problem(phase="toolchain", what=error.message, hint=error.hint)
            for python in pythons:
                answer = bare_answer(jobs.job_name(cuda, python), planned, python, "failed")
                failed.append(JobResult(answer=answer, problem=problem))
    if not found:
        raise errors[0]
    return found, tuple(failed)


def refuse_unwritable(folder: Path) -> None:
    """Before an hour of compiling, not after it."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if not existing.is_dir():
        raise UnreadableError(existing, "is not a folder, so wheels cannot be written there", hint="--output FOLDER")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UnreadableError(existing, "is not writable, so wheels cannot be written there", hint="--output FOLDER")
