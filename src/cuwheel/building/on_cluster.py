"""The jobs of a build on a cluster: what is sent, in which order, and where what comes back belongs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import act, jobs, shares, sources, workspace
from cuwheel.building.answer import Outcome, WorkerSpan, bare_answer
from cuwheel.building.decide import decide_jobs
from cuwheel.building.job_run import PlacedWheels, record_of
from cuwheel.building.request import BuildRequest
from cuwheel.building.shares import KeptShare
from cuwheel.building.sources import pack_folder, unpack_packed
from cuwheel.building.tables import Table
from cuwheel.building.values import BuildPlan, Built, DecidedJob, JobResult, Problem, Project, Tree
from cuwheel.clusters import engine
from cuwheel.clusters.task import Answer, Done, Task
from cuwheel.errors import UsageError
from cuwheel.machine import system
from cuwheel.machine.fleet import Machine
from cuwheel.network import cluster_access
from cuwheel.support import codec, files, log
from cuwheel.toolchains import lock
from cuwheel.toolchains.store import open_store
from cuwheel.verdicts.planning import plan as plan_values
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError

if TYPE_CHECKING:
    from cuwheel.clusters.engine import Engine
    from cuwheel.verdicts.planning.plan import Job as PlanJob
    from cuwheel_core.support.finding import Finding

SOURCE, LOCK, LOG, RECORD = "source.tar", "cuwheel.lock", "log.txt", "record.tar"
JOB_FUNCTION, SHARE_FUNCTION = f"{__name__}:build_job_here", f"{__name__}:compile_share_here"
_LEAST_CORES = 2
# What a request says of where toolkits come from, as far as it holds on another machine.
_TOOLKIT_SOURCES = ("providers", "offline", "fetched", "host_compiler", "toolkit", "redist_url", "apt_sources", "image")


def run_on_cluster(plan: BuildPlan, pythons: Sequence[str]) -> OnCluster:
    """All jobs of a plan. For each CUDA version the oldest Python first: its wheel may serve the others."""
    request = plan.request
    if request.fetched and "://" not in request.fetched:
        raise UsageError(
            "--locked names a folder of this machine, and the workers do not have it",
            hint="serve it: --locked https://…; or use the lock file alone",
        )
    if request.fit:
        raise UsageError("a build that must fit another one is not built by a cluster")
    act.make_output(request.output)
    folder = plan.store.folder / "cluster"
    found = cluster_access.parse_address(str(request.cluster))
    with engine.open_engine(found, folder, cores=_LEAST_CORES) as machine:
        work = OnCluster(plan, pythons, machine)
        machine.run(work.begin(), work.follow_up)
    return work


class OnCluster:
    """`results` by job. `spans`: who did what when."""

    def __init__(self, plan: BuildPlan, pythons: Sequence[str], machine: Engine) -> None:
        self._plan, self._planned, self._pythons, self._engine = plan, plan.planned, pythons, machine
        self._placed = PlacedWheels()
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
        cores = [each.cores for each in self._engine.gather()]
        self._engine.workers.fix_kind()
        self._earlier = EarlierRuns(self._plan.store.folder / "cluster", self._engine.workers.kind)
        # Builds that could run at once.
        slots = sum(max(1, each // _LEAST_CORES) for each in cores) + self._engine.to_come
        chosen = shares.choose_on_cluster(self._plan.request, self._planned, slots)
        self._by_shares, self.findings = chosen.by_shares, chosen.findings
        if count := sum(1 for plan in self._planned for _ in self._first_tasks(plan, self._pythons[0])):
            self._cores = max(_LEAST_CORES, min(max(cores, default=1), sum(cores) // count))
        first = (task for plan in self._planned for task in self._first_tasks(plan, self._pythons[0]))
        return list(self._unless_known(first))

    def ordered(self) -> tuple[JobResult, ...]:
        return tuple(
            self.results[jobs.job_name(plan.cuda, python)] for plan in self._planned for python in self._pythons
        )

    def _packed(self) -> dict[str, str]:
        """What workers need, by content: a worker that has it is not sent it again."""
        request = self._plan.request
        inputs = {}
        with tempfile.TemporaryDirectory() as scratch:
            source = sources.pack_source(self._plan.tree, Path(scratch, SOURCE))
            inputs[SOURCE] = self._engine.add_input(source)
        if request.locked:
            inputs[LOCK] = self._engine.add_input(request.locked)
        return inputs

    def _parameters(self, plan: PlanJob, python: str) -> JobParameters:
        whole, request = self._plan, self._plan.request
        return JobParameters(
            tree=replace(whole.tree, folder=Path(), asked=""),
            table=whole.table,
            project=whole.project,
            plan=plan,
            machines=whole.machines,
            python=python,
            toolkit_sources={name: getattr(request, name) for name in _TOOLKIT_SOURCES},
            by_shares=self._by_shares,
            locked=request.locked is not None,
            locking=request.lock is not None,
        )

    def _first_tasks(self, plan: PlanJob, python: str) -> Iterator[Task]:
        parameters = self._parameters(plan, python)
        parts = shares.shares_of_plan(plan) if self._by_shares else ()
        if len(parts) <= 1:
            yield self._task(jobs.job_name(plan.cuda, python), "job", parameters)
            return
        for part in parts:
            name = f"{jobs.job_name(plan.cuda, python)} {part.name}"
            yield self._task(name, "share", replace(parameters, share=part.name))

    def _task(
        self, name: str, kind: Literal["job", "share"], parameters: JobParameters, more: dict[str, str] | None = None
    ) -> Task:
        cores = self._plan.request.jobs or self._cores
        return Task(
            id=f"{self._plan.project.name} {name}",
            function=SHARE_FUNCTION if kind == "share" else JOB_FUNCTION,
            parameters=codec.encode(parameters).decode(),
            inputs=self._inputs | (more or {}),
            cores=cores,
            memory=cores * system.MEMORY_A_COMPILER,
            fresh=self._plan.request.rebuild,
            alike=True,
        )

    def _unless_known(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Those of which no earlier run had the answer; of the others, what that makes possible."""
        for task in tasks:
            if found := self._earlier.answer(task):
                yield from self.follow_up(found)
            else:
                yield self._earlier.timed(task)

    def follow_up(self, done: Done) -> Iterator[Task]:
        """What an answer makes possible."""
        if not done.problem and not done.cached:
            self._earlier.kind = self._engine.workers.kind  # known by now
            done = self._earlier.note(done)
        yield from self._unless_known(self._next(done))

    def _next(self, done: Done) -> Iterator[Task]:
        """A job whose shares are all there, and other Pythons."""
        parameters = codec.decode(done.task.parameters, JobParameters)
        name = jobs.job_name(parameters.plan.cuda, parameters.python)
        failed = bool(done.problem)
        if done.task.function == SHARE_FUNCTION:
            made = None if done.problem else codec.decode(done.text, MadeShare)
            failed = made is None or made.built.problem is not None
            self._add_span(done, failed=failed)
            arrived = self._shares.setdefault(name, {})
            arrived[parameters.share or ""] = done
            if len(arrived) == len(shares.shares_of_plan(parameters.plan)):
                yield from self._join(name, parameters, arrived)
            return
        result = self._result(name, parameters, done)
        self._add_span(done, failed=result.answer.outcome in ("failed", "refused"))
        yield from self._ended(parameters, result)

    def _join(self, name: str, parameters: JobParameters, arrived: dict[str, Done]) -> Iterator[Task]:
        made = []
        for part in shares.shares_of_plan(parameters.plan):
            done = arrived[part.name]
            if done.problem:
                problem = Problem(phase="cluster", what=done.problem, hint=done.hint)
                yield from self._ended(parameters, self._failed(name, parameters, problem))
                return
            found = codec.decode(done.text, MadeShare)
            if found.built.problem:
                failed = self._failed(name, parameters, found.built.problem)
                yield from self._ended(parameters, self._with_built(failed, found.built, done))
                return
            made.append(found)
        wheels = {f"{part}.whl": self._engine.add_input(done.files[f"{part}.whl"]) for part, done in arrived.items()}
        whole = replace(parameters, share=None, made=tuple(made))
        yield replace(self._task(name, "job", whole, wheels), cores=1, memory=0)

    def _ended(self, parameters: JobParameters, result: JobResult) -> Iterator[Task]:
        self.results[result.answer.id] = result
        if parameters.python != self._pythons[0]:
            return
        wheel = result.answer.wheel
        for python in self._pythons[1:]:
            if wheel is None or not jobs.serves(wheel.file.name, python):
                yield from self._first_tasks(parameters.plan, python)
                continue
            answer = bare_answer(jobs.job_name(parameters.plan.cuda, python), parameters.plan, python, "skipped")
            reason = f"{wheel.file.name} serves Python {python} too"
            self.results[answer.id] = JobResult(answer=replace(answer, reason=reason, wheel=wheel))

    def _failed(self, name: str, parameters: JobParameters, problem: Problem) -> JobResult:
        return JobResult(answer=bare_answer(name, parameters.plan, parameters.python, "failed"), problem=problem)

    def _result(self, name: str, parameters: JobParameters, done: Done) -> JobResult:
        if done.problem:
            return self._failed(name, parameters, Problem(phase="cluster", what=done.problem, hint=done.hint))
        try:
            made = read_result(done.text)
            if self._plan.request.lock and LOCK in done.files:
                got = lock.read_lock(done.files[LOCK])
                lock.update(self._plan.request.lock, *got.toolchain, *got.requirements)
            result = self._here(made, done)
        except CuwheelError as error:
            return self._failed(name, parameters, Problem(phase="cluster", what=error.message, hint=error.hint))
        log.info("%s: %s on %s", name, result.answer.outcome, done.worker)
        return result

    def _here(self, made: JobResult, done: Done) -> JobResult:
        """The same with the places of this machine."""
        made = self._with_built(made, made.built, done) if made.built else made
        answer = made.answer
        if wheel := answer.wheel:
            arrived = place = done.files[wheel.file.name]
            if answer.outcome in ("built", "resumed") and not self._plan.table.merge:
                self._placed.claim(arrived.name, answer.id)
                place = files.copy(arrived, self._plan.request.output / arrived.name)
                place.chmod(0o644)
            outcome: Outcome = "resumed" if done.cached and answer.outcome == "built" else answer.outcome
            answer = replace(answer, outcome=outcome, wheel=replace(wheel, path=str(place)))
        return replace(made, answer=answer)

    def _with_built(self, result: JobResult, built: Built, done: Done) -> JobResult:
        """Adds the log and the record of compiler calls that came back."""
        record = ""
        if RECORD in done.files:
            records = self._plan.store.folder / "cluster/records"
            with contextlib.suppress(CuwheelError):
                record = str(sources.unpack_source(done.files[RECORD], records))
        built = replace(built, log=str(done.files.get(LOG, "")), record=record)
        answer = replace(result.answer, log=built.log, record=record)
        return replace(result, answer=answer, built=built, record=record_of(built))

    def _add_span(self, done: Done, *, failed: bool) -> None:
        if not done.cached:
            self.spans.append(
                WorkerSpan(worker=done.worker, name=done.task.id, began=done.began, ended=done.ended, failed=failed)
            )


# What this machine remembers of earlier runs: answers that are used again, and how long each task took.

_NOTE = "answer.json"
_MOST_TIMES = 10_000


class EarlierRuns:
    """In a folder. `kind`: of the workers, whose answers fit together; empty where none is there yet.

    The longest tasks go first.
    """

    def __init__(self, folder: Path, kind: tuple[str, ...]) -> None:
        self._folder, self.kind = folder, kind
        self._seconds = codec.noted(folder / "times.json", dict[str, float]) or {}

    def _place(self, task: Task) -> Path:
        return self._folder / "answers" / task.key(self.kind)

    def timed(self, task: Task) -> Task:
        return replace(task, seconds=self._seconds.get(task.id))

    def answer(self, task: Task) -> Done | None:
        """If its files are still what they were."""
        place = self._place(task)
        found = codec.noted(place / _NOTE, Answer) if self.kind and not task.fresh else None
        if found is None or not all(files.holds(place / name, sha256) for name, sha256 in found.hashes.items()):
            return None
        paths = {name: place / name for name in found.hashes}
        return Done(task=task, text=found.text, files=paths, worker=found.worker, cached=True)

    def note(self, done: Done) -> Done:
        """Its time, its files and what it says. A build that failed is tried again by the next run: it has no note."""
        place = self._place(done.task)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._seconds.pop(done.task.id, None)
        self._seconds[done.task.id] = round(done.ended - done.began, 3)
        newest = dict(list(self._seconds.items())[-_MOST_TIMES:])
        with contextlib.suppress(OSError, UnreadableError):
            files.write(self._folder / "times.json", codec.encode(newest))
        moved = {name: Path(shutil.move(path, place / name)) for name, path in done.files.items()}
        if done.task.function == SHARE_FUNCTION:
            succeeded = codec.decode(done.text, MadeShare).built.problem is None
        else:
            succeeded = read_result(done.text).answer.outcome in ("built", "resumed")
        if succeeded:
            hashes = {name: files.sha256(path) for name, path in moved.items()}
            text = codec.encode(Answer(text=done.text, hashes=hashes, worker=done.worker))
            files.write(place / _NOTE, text, durable=True)
        return replace(done, files=moved)


# A job, or one share of it, on a worker of a cluster: from what was sent to what goes back.


class MadeShare(Struct, frozen=True, kw_only=True):
    """A share that a worker compiled. `built.key`: of all that went in. `kept`: None where it failed."""

    name: str
    built: Built
    kept: KeptShare | None = None


class JobParameters(Struct, frozen=True, kw_only=True):
    """One job. `share`: the one to compile; None for the whole. `made`: shares that come with it, as files."""

    tree: Tree
    table: Table
    project: Project
    plan: plan_values.Job
    machines: tuple[Machine, ...]
    python: str
    toolkit_sources: dict[str, Any]
    by_shares: bool = False
    locked: bool = False
    locking: bool = False
    share: str | None = None
    made: tuple[MadeShare, ...] = ()


def build_job_here(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """A whole job, finished as it would be here: its result, the wheel, the log and the record."""
    parameters = codec.decode(task.parameters, JobParameters)
    plan, made = _prepared(task, parameters, inputs, work)
    for each, share in zip(parameters.made, shares.shares_of_plan(parameters.plan), strict=False):
        if each.kept is None or each.built.key != shares.share_key(share, made, plan):
            raise MalformedError(
                each.name, "this share was compiled at another place or with other tools", hint="build with --shares no"
            )
        shares.accept_share(share, made, plan, inputs[f"{share.name}.whl"], each.kept)
    if task.fresh:
        workspace.forget_result(made.folder)
    result = act.build_one(plan, made, PlacedWheels())
    found = {LOCK: work / LOCK} if parameters.locking and (work / LOCK).exists() else {}
    if wheel := result.answer.wheel:
        found[wheel.file.name] = wheel.file
    if result.built:
        found |= _log_and_record(result.built, work)
    return codec.encode_any(replace(result, record=None)).decode(), found


def compile_share_here(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """One share of a job: compiled, or of this machine's cache."""
    parameters = codec.decode(task.parameters, JobParameters)
    plan, made = _prepared(task, parameters, inputs, work)
    (wanted,) = [each for each in shares.shares_of_plan(parameters.plan) if each.name == parameters.share]
    key = shares.share_key(wanted, made, plan)
    with workspace.hold_folder(made.folder):
        kept = None if task.fresh else shares.cached_share(wanted, made, plan)
        if kept:
            answer = MadeShare(name=wanted.name, built=Built(key=key), kept=kept)
            return codec.encode(answer).decode(), {f"{wanted.name}.whl": Path(kept.wheel)}
        built, kept = shares.compile_share(wanted, made, plan, act.package_source(plan, made))
        found = _log_and_record(built, work)
    answer = MadeShare(name=wanted.name, built=replace(built, key=key), kept=kept)
    if kept:
        found[f"{wanted.name}.whl"] = Path(kept.wheel)
    return codec.encode(answer).decode(), found


def _prepared(
    task: Task, parameters: JobParameters, inputs: dict[str, Path], work: Path
) -> tuple[BuildPlan, DecidedJob]:
    store = open_store()
    tree = unpack_packed(inputs[SOURCE], parameters.tree, store)
    lock = files.copy(inputs[LOCK], work / LOCK) if LOCK in inputs else work / LOCK
    request = BuildRequest(
        tree.folder,
        output=work / "dist",
        **parameters.toolkit_sources,
        locked=lock if parameters.locked else None,
        lock=lock if parameters.locking else None,
        jobs=system.compilers_at_once(task.cores),
        rebuild=task.fresh and not parameters.made,
        shares=parameters.by_shares,
    )
    request.output.mkdir()
    plan = BuildPlan(
        request=request,
        store=store,
        tree=tree,
        table=parameters.table,
        project=parameters.project,
        machines=parameters.machines,
        planned=(parameters.plan,),
    )
    plan = decide_jobs(plan, [parameters.python], dict(os.environ))
    return plan, plan.jobs[0]


def _log_and_record(built: Built, work: Path) -> dict[str, Path]:
    """What a person looks into when it failed, and where the times are from."""
    found: dict[str, Path] = {}
    if built.log and Path(built.log).is_file():
        found[LOG] = files.copy(Path(built.log), work / LOG)
    if built.record and Path(built.record).is_dir():
        found[RECORD] = pack_folder(Path(built.record), work / RECORD, "record")
    return found


def read_result(text: str) -> JobResult:
    """What `job` answered."""
    return codec.parse(text, JobResult, "the answer of a worker", "what became of a job")
