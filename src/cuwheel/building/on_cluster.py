"""The jobs of a build on a cluster: what is sent, in which order, and where what comes back belongs."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import finishing, jobs, on_worker, shares, sources
from cuwheel.building.on_worker import Given, MadeShare, Sources
from cuwheel.building.values import Built, JobResult, Problem, WorkerSpan
from cuwheel.clusters import blobs, engine, target
from cuwheel.clusters.task import Task
from cuwheel.errors import CuwheelError, UsageError
from cuwheel.machine import resources
from cuwheel.support import codec, files, log
from cuwheel.toolchains import lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.steps import Steps
    from cuwheel.building.values import Outcome
    from cuwheel.clusters.engine import Capacity
    from cuwheel.clusters.task import Done
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.planning.plan import Job as PlanJob

_LEAST_CORES = 2


def refuse(steps: Steps) -> None:
    """What cannot be said to another machine."""
    request = steps.request
    if request.fetched and "://" not in request.fetched:
        raise UsageError(
            "--from names a folder of this machine, and the workers do not have it",
            hint="serve it: --from https://…, or use --locked",
        )
    if request.fit:
        raise UsageError("a build that must fit another one is not built by a cluster")


def executed(steps: Steps, planned: Sequence[PlanJob], pythons: Sequence[str]) -> OnCluster:
    """All jobs of a plan. For each CUDA version the oldest Python first: its wheel may serve the others."""
    refuse(steps)
    folder = steps.store.folder / "cluster"
    found = target.parse(str(steps.request.cluster))
    with engine.opened(found, folder) as machine:
        work = OnCluster(steps, planned, pythons, machine.capacity())
        machine.run(work.begin(), work.follow_up, succeeded)
    return work


def succeeded(done: Done) -> bool:
    """A build that failed is tried again by the next run."""
    if done.task.function.endswith(":share"):
        return codec.decode(done.text, MadeShare).problem is None
    return on_worker.result_of(done.text).outcome in ("built", "resumed")


class OnCluster:
    """`results` by job. `spans`: who did what when."""

    def __init__(self, steps: Steps, planned: Sequence[PlanJob], pythons: Sequence[str], capacity: Capacity) -> None:
        self._steps, self._planned, self._pythons, self._capacity = steps, planned, pythons, capacity
        self._inputs: dict[str, str] = {}
        self._shares: dict[str, dict[str, Done]] = {}
        self._cores = _LEAST_CORES
        self._by_shares = False
        self.results: dict[str, JobResult] = {}
        self.spans: list[WorkerSpan] = []
        self.findings: tuple[Finding, ...] = ()

    def begin(self) -> list[Task]:
        """What can be done at once."""
        self._inputs = self._packed()
        capacity = self._capacity
        chosen = shares.choose_on_cluster(self._steps.request, self._planned, capacity.slots)
        self._by_shares, self.findings = chosen.by_shares, chosen.findings
        first = [task for plan in self._planned for task in self._begun(plan, self._pythons[0])]
        if first:
            self._cores = max(_LEAST_CORES, min(capacity.largest, capacity.cores // len(first)))
            first = [task for plan in self._planned for task in self._begun(plan, self._pythons[0])]
        return first

    def ordered(self) -> tuple[JobResult, ...]:
        return tuple(
            self.results[jobs.job_name(plan.cuda, python)] for plan in self._planned for python in self._pythons
        )

    def _packed(self) -> dict[str, str]:
        """By content: a worker that has it is not sent it again."""
        request = self._steps.request
        inputs = {}
        with tempfile.TemporaryDirectory() as scratch:
            source = sources.pack_source(self._steps.tree, Path(scratch, on_worker.SOURCE))
            inputs[on_worker.SOURCE] = blobs.add(source)
        if request.locked:
            inputs[on_worker.LOCK] = blobs.add(request.locked)
        return inputs

    def _given(self, plan: PlanJob, python: str) -> Given:
        request, steps = self._steps.request, self._steps
        return Given(
            tree=replace(steps.tree, folder=Path(), asked=""),
            table=steps.table,
            project=steps.project,
            plan=plan,
            python=python,
            sources=Sources(
                providers=tuple(request.providers),
                offline=request.offline,
                fetched=request.fetched,
                host_compiler=request.host_compiler,
                redist_url=request.redist_url,
                apt_sources=request.apt_sources,
                image=request.image,
            ),
            by_shares=self._by_shares,
            locked=request.locked is not None,
            locking=request.lock is not None,
        )

    def _begun(self, plan: PlanJob, python: str) -> Iterator[Task]:
        given = self._given(plan, python)
        parts = shares.of_plan(plan) if self._by_shares else ()
        if len(parts) <= 1:
            yield self._task(jobs.job_name(plan.cuda, python), "job", given)
            return
        for part in parts:
            name = f"{jobs.job_name(plan.cuda, python)} {part.name}"
            yield self._task(name, "share", replace(given, share=part.name))

    def _task(self, name: str, function: str, given: Given, more: dict[str, str] | None = None) -> Task:
        cores = self._steps.request.jobs or self._cores
        return Task(
            id=f"{self._steps.project.name} {name}",
            function=f"cuwheel.building.on_worker:{function}",
            parameters=codec.encode(given).decode(),
            inputs=self._inputs | (more or {}),
            cores=cores,
            memory=cores * resources.MEMORY_A_COMPILER,
            fresh=self._steps.request.rebuild,
            alike=True,
            kept=True,
            label=f"{self._steps.project.name} {name} {function}",
        )

    def follow_up(self, done: Done) -> Iterator[Task]:
        """What an answer makes possible: a job whose shares are all there, and other Pythons."""
        given = codec.decode(done.task.parameters, Given)
        name = jobs.job_name(given.plan.cuda, given.python)
        failed = bool(done.problem)
        if done.task.function.endswith(":share"):
            made = None if done.problem else codec.decode(done.text, MadeShare)
            failed = made is None or made.problem is not None
            self._add_span(done, failed=failed)
            there = self._shares.setdefault(name, {})
            there[given.share or ""] = done
            if len(there) == len(shares.of_plan(given.plan)):
                yield from self._join(name, given, there)
            return
        result = self._result(name, given, done)
        self._add_span(done, failed=result.outcome in ("failed", "refused"))
        yield from self._ended(given, result)

    def _join(self, name: str, given: Given, there: dict[str, Done]) -> Iterator[Task]:
        made = []
        for part in shares.of_plan(given.plan):
            done = there[part.name]
            if done.problem:
                problem = Problem(phase="cluster", what=done.problem, hint=done.hint)
                yield from self._ended(given, self._failed(name, given, problem))
                return
            found = codec.decode(done.text, MadeShare)
            if found.problem:
                log_file = str(done.files.get(on_worker.LOG, ""))
                built = Built(key="", log=log_file, phases=found.phases, seconds=found.seconds, problem=found.problem)
                yield from self._ended(given, replace(self._failed(name, given, found.problem), built=built))
                return
            made.append(found)
        wheels = {f"{part}.whl": blobs.add(done.files[f"{part}.whl"]) for part, done in there.items()}
        whole = replace(given, share=None, made=tuple(made))
        yield replace(self._task(name, "job", whole, wheels), cores=1, memory=0)

    def _ended(self, given: Given, result: JobResult) -> Iterator[Task]:
        self.results[result.id] = result
        if given.python != self._pythons[0]:
            return
        for python in self._pythons[1:]:
            served = self._served(given, python, result)
            if served:
                self.results[served.id] = served
            else:
                yield from self._begun(given.plan, python)

    def _served(self, given: Given, python: str, first: JobResult) -> JobResult | None:
        if first.wheel is None or not jobs.serves(first.wheel.path.name, python):
            return None
        return JobResult(
            id=jobs.job_name(given.plan.cuda, python),
            python=python,
            plan=given.plan,
            outcome="skipped",
            reason=f"{first.wheel.path.name} serves Python {python} too",
            wheel=first.wheel,
        )

    def _failed(self, name: str, given: Given, problem: Problem) -> JobResult:
        return JobResult(id=name, python=given.python, plan=given.plan, outcome="failed", problem=problem)

    def _result(self, name: str, given: Given, done: Done) -> JobResult:
        if done.problem:
            return self._failed(name, given, Problem(phase="cluster", what=done.problem, hint=done.hint))
        try:
            made = on_worker.result_of(done.text)
            if self._steps.request.lock and on_worker.LOCK in done.files:
                got = lock.read(done.files[on_worker.LOCK])
                lock.update(self._steps.request.lock, *got.toolchain, *got.requirements)
            result = self._here(made, done)
        except CuwheelError as error:
            return self._failed(name, given, Problem(phase="cluster", what=error.message, hint=error.hint))
        log.info("%s: %s on %s", name, result.outcome, done.worker)
        return result

    def _here(self, made: JobResult, done: Done) -> JobResult:
        """The same with the places of this machine."""
        record = ""
        if on_worker.RECORD in done.files:
            with contextlib.suppress(CuwheelError):
                record = str(
                    sources.unpacked(done.files[on_worker.RECORD], self._steps.store.folder / "cluster/records")
                )
        built = made.built and replace(made.built, log=str(done.files.get(on_worker.LOG, "")), record=record)
        result = replace(made, built=built, record=finishing.record_of(built) if built else None)
        if made.wheel is None:
            return result
        arrived = done.files[made.wheel.path.name]
        place = arrived
        if made.outcome in ("built", "resumed") and not self._steps.table.merge:
            self._steps.placed.claim(arrived.name, made.id)
            place = files.copy(arrived, self._steps.request.output / arrived.name)
            place.chmod(0o644)
        outcome: Outcome = "resumed" if done.cached and made.outcome == "built" else made.outcome
        found = replace(made.wheel, survey=replace(made.wheel.survey, target=str(place)))
        return replace(result, outcome=outcome, wheel=found)

    def _add_span(self, done: Done, *, failed: bool) -> None:
        if not done.cached:
            self.spans.append(
                WorkerSpan(worker=done.worker, name=done.task.id, began=done.began, ended=done.ended, failed=failed)
            )
