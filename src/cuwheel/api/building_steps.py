"""The steps of a build in their order: source, configuration, plan, toolchains, jobs, and what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.building.requirements import Source
    from cuwheel.building.values import Job
    from cuwheel.finding import Finding
    from cuwheel.planning.values import Job as PlanJob
    from cuwheel.planning.values import NotServed
    from cuwheel.report import build as answers
    from cuwheel.toolchains.provide import Wish
    from cuwheel.toolchains.values import Toolchain


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    config: Path | None
    output: Path
    providers: tuple[str, ...]
    toolkit_cache: Path | None
    toolkit_source: str | None
    host_compiler: str | None
    redist_url: str | None
    apt_sources: str | None
    image: str | None
    offline: bool
    lock: Path | None
    locked: Path | None
    jobs: int | None
    at_once: int
    resume: bool
    keep: bool


class Steps:
    """`decide` looks, and provides toolchains; what it found is what `carry_out` does."""

    def __init__(self, asked: str, said: Mapping[str, object], options: Options) -> None:
        from cuwheel import log
        from cuwheel.building import config, jobs, pyproject, recipes, source
        from cuwheel.errors import MalformedError
        from cuwheel.toolchains.store import open_store

        self.options = options
        self.store = open_store(options.toolkit_cache)
        self.tree = source.obtain(asked, self.store.folder, offline=options.offline, without=[options.output])
        found = config.find(self.tree.folder, options.config, said)
        self.table, self.configuration = found.table, found.path
        self.project = pyproject.read(*jobs.below(self.tree, self.table.subdirectory), self.table.backend)
        self.recipe = recipes.find(self.project.name, self.project.version) if self.table.recipe else None
        if self.recipe:
            self.table = config.over(self.recipe.settings, found)
            self.project = pyproject.read(*jobs.below(self.tree, self.table.subdirectory), self.table.backend)
            used = "; ".join(recipes.in_effect(self.recipe, self.table)) or "nothing of it that is not said already"
            log.info("using the recipe for %s: %s", self.recipe.name, used)
        if self.table.gate.device_code and not pyproject.has_cuda(self.tree.folder, self.tree.files):
            raise MalformedError(
                asked,
                "has no CUDA code: no .cu file, and no build file that speaks of CUDA",
                hint="a wheel without device code needs no cuwheel: pip wheel .",
            )
        self.jobs: list[Job] = []
        self.failed: list[answers.Job] = []
        self.placed: dict[str, str] = {}  # name of a wheel in the output folder → the job that made it
        self.unserved: tuple[NotServed, ...] = ()
        self.findings: tuple[Finding, ...] = tuple(source.findings(self.tree))

    def decide(self, caller: Mapping[str, str], *, dry_run: bool) -> None:
        from cuwheel import log
        from cuwheel.building import frontend, jobs

        if not dry_run:
            frontend.require_tools(repairs=self.table.repair.enabled is not False)
        _refuse_unwritable(self.options.output)
        planned = self._plan()
        wanted = jobs.pythons(self.table, self.project)
        images = "container" in self.options.providers  # which have interpreters of their own
        interpreters = {} if images else jobs.interpreters(wanted)  # before a toolkit is downloaded for nothing
        toolchains = self._toolchains(planned, dry_run=dry_run, pythons=wanted)
        if images and not all(each.prefix for each in toolchains.values()):
            interpreters = jobs.interpreters(wanted)
        order = jobs.Order(
            table=self.table,
            tree=self.tree,
            project=self.project,
            store=self.store,
            jobs=self.options.jobs,
            at_once=self.options.at_once,
            images={} if dry_run else jobs.image_paths(toolchains.values()),
        )
        for plan in planned:
            if (toolchain := toolchains.get(plan.cuda)) is None:
                continue
            for python in wanted:
                found = None if toolchain.prefix else interpreters[python]
                self.jobs.append(jobs.make(order, plan, toolchain, python, found, caller))
        log.info("%s: %s", self.project.name, ", ".join(job.id for job in self.jobs))

    def _plan(self) -> tuple[PlanJob, ...]:
        from cuwheel.api.fleets import plan
        from cuwheel.errors import UsageError

        table = self.table
        if not table.for_:
            raise UsageError(
                "for which GPUs? Neither the command line nor a configuration says",
                hint='cuwheel build --for h100,l40   (or in pyproject.toml: [tool.cuwheel] for = ["h100", "l40"])',
            )
        wishes = table.plan
        made = plan(
            *(self._machine(each) for each in table.for_),
            cuda=table.cuda,
            future=wishes.future,
            native=wishes.native,
            specific=wishes.specific,
            family=wishes.family,
            ptx=wishes.ptx,
        )
        self.unserved = made.unserved
        planned = tuple(job for job in made.jobs if job.archs or job.ptx)
        if not planned:
            told = "; ".join(f"{each.machine}: {', '.join(each.why)}" for each in made.unserved)
            raise UsageError(f"no wheel can serve these machines: {told}", hint="cuwheel plan says what would")
        self._choose_names([job.cuda for job in planned])
        return planned

    def _machine(self, name: str) -> str:
        """A fleet file is named from where the configuration is, as every file in one is."""
        near = (self.configuration.parent if self.configuration else self.tree.folder) / name
        return str(near) if near.is_file() and not Path(name).is_file() else name

    def _choose_names(self, cudas: Sequence[str]) -> None:
        """Each wheel its own: by local versions where nobody said how."""
        from dataclasses import replace

        from cuwheel.building import naming
        from cuwheel.errors import UsageError

        table = self.table
        if table.merge and len(set(cudas)) == 1:
            raise UsageError("--merge joins the wheels of several CUDA versions, and this is one", hint="--cuda A,B")
        chosen = naming.choose(table, cudas)
        if table.naming is None and chosen == "local":
            self.findings = (*self.findings, naming.finding(cudas))
        self.table = replace(table, naming=chosen)
        if naming.collide(self.table, cudas):
            raise UsageError(
                f"the wheels for CUDA {', '.join(cudas)} would have the same name (naming is {chosen!r})",
                hint="--naming local gives each its own: 1.0+cu130",
            )

    def _toolchains(self, planned: Sequence[PlanJob], *, dry_run: bool, pythons: Sequence[str]) -> dict[str, Toolchain]:
        """One that cannot be had fails its jobs, and none that can be had ends the build."""
        from cuwheel.errors import CuwheelError
        from cuwheel.toolchains import lock, provide

        found: dict[str, Toolchain] = {}
        errors: dict[str, CuwheelError] = {}
        for plan in planned:
            try:
                wish = self._wish(plan.cuda)
                found[plan.cuda] = provide.foresee(wish) if dry_run else provide.provide(wish)
                if self.options.lock and not dry_run:
                    lock.update(self.options.lock, lock.locked(found[plan.cuda].toolkit))
            except CuwheelError as error:
                errors[plan.cuda] = error
        if not found:
            raise next(iter(errors.values()))
        from cuwheel.api import built

        for plan in planned:
            if plan.cuda in errors:
                self.failed += [built.without_toolchain(plan, python, errors[plan.cuda]) for python in pythons]
        return found

    def _wish(self, cuda: str) -> Wish:
        from cuwheel.facts import toolkits
        from cuwheel.toolchains.provide import Wish

        options = self.options
        named = [name for name in self.table.cuda if toolkits.find_toolkit(name).version == cuda]
        extra = ("torch",) if self.project.backend == "torch" else ()
        return Wish(
            version=named[0] if named else cuda,  # as it was said: a patch release is one
            components=(*self.table.components, *extra),
            providers=options.providers,
            cache=options.toolkit_cache,
            offline=options.offline,
            source=options.toolkit_source,
            locked=options.locked,
            host_compiler=options.host_compiler,
            redist_url=options.redist_url,
            apt_sources=options.apt_sources,
            image=options.image,
        )

    def foreseen(self) -> tuple[answers.Job, ...]:
        from cuwheel.api import built

        return (*(built.planned(job) for job in self.jobs), *self.failed)

    def carry_out(self) -> tuple[answers.Job, ...]:
        """For each CUDA version the oldest Python first: its wheel may serve the others."""
        from cuwheel.errors import UnreadableError

        try:
            self.options.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableError.from_os(error, self.options.output, hint="--output FOLDER") from error
        first: dict[str, Job] = {}
        for job in self.jobs:
            first.setdefault(job.cuda, job)
        done = self._together(list(first.values()))
        rest = [job for job in self.jobs if job.id not in done]
        served = {job.id: answer for job in rest if (answer := _served(job, done[first[job.cuda].id]))}
        done |= served
        done |= self._together([job for job in rest if job.id not in served])
        return (*(done[job.id] for job in self.jobs), *self.failed)

    def _together(self, wanted: Sequence[Job]) -> dict[str, answers.Job]:
        if self.options.at_once <= 1 or len(wanted) <= 1:
            return {job.id: self._one(job) for job in wanted}
        from concurrent.futures import ThreadPoolExecutor

        from cuwheel.building import workspace

        with ThreadPoolExecutor(self.options.at_once) as pool:
            try:
                return dict(zip([job.id for job in wanted], pool.map(self._one, wanted), strict=True))
            except BaseException:  # whoever interrupts us means the builds
                pool.shutdown(wait=False, cancel_futures=True)
                for job in wanted:
                    workspace.end_leftovers(job.folder)
                raise

    def _requirements(self, job: Job) -> Source:
        """Python's packages: of the lock where it knows them, to be written down, or whatever the index has."""
        from cuwheel.building.requirements import Source
        from cuwheel.toolchains import lock
        from cuwheel.toolchains.downloads import Supply

        options, toolkit = self.options, job.toolchain.toolkit
        supply = Supply(store=self.store, offline=options.offline, base=options.toolkit_source)
        if options.locked or options.toolkit_source:
            source = options.toolkit_source
            there = lock.requirements_for(toolkit, job.python, source, options.locked, offline=options.offline)
            return Source(supply=supply, locked=there)
        return Source(supply=supply, kept=options.lock is not None)

    def _one(self, job: Job) -> answers.Job:
        from cuwheel import log
        from cuwheel.api import built
        from cuwheel.building import run
        from cuwheel.toolchains import lock

        options = run.Options(
            timeout=self.table.timeout,
            cache=self.table.cache,
            offline=self.options.offline,
            resume=self.options.resume,
            keep=self.options.keep,
            requirements=self._requirements(job),
        )
        log.info("%s: begun", job.id)
        with run.carried_out(job, self.tree, self.store, options) as done:
            made = built.finished(self, job, done)
        if self.options.lock and done.requirements:
            lock.update(self.options.lock, lock.requirements(job.toolchain.toolkit, job.python, done.requirements))
        took = "" if made.outcome == "resumed" else f" in {made.seconds:.0f} s"
        log.info("%s: %s%s", job.id, made.outcome, took)
        return made


def _served(job: Job, first: answers.Job) -> answers.Job | None:
    """The wheel of another Python, where it can be installed for this one."""
    from cuwheel.api import built
    from cuwheel.building import jobs

    if first.wheel is None or not jobs.serves(Path(first.wheel.path).name, job.python):
        return None
    return built.served(job, first)


def _refuse_unwritable(folder: Path) -> None:
    """Before an hour of compiling, not after it."""
    import os

    from cuwheel.errors import UnreadableError

    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise UnreadableError(there, "is no folder, and wheels were to go there", hint="--output FOLDER")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UnreadableError(there, "cannot be written, and wheels were to go there", hint="--output FOLDER")
