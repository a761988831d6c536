"""One job carried out: a clean copy, an environment, the backend's wheel; then its name, repair, the gate, its place.

A failure is a value too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from cuwheel.building import crossing, environment, gate, jobs, sources, workspace
from cuwheel.building.answer import Outcome, Phase, calls_of, tools_of, wheel_of
from cuwheel.building.environment import Installer, PackageSource, Shell
from cuwheel.building.jobs import job_answer
from cuwheel.building.recording import reader, sccache, session
from cuwheel.building.recording.shims import RecordOptions
from cuwheel.building.values import BuildPlan, Built, Cached, DecidedJob, GateRequest, GateResult, JobResult, Problem
from cuwheel.changes.repair.act import execute
from cuwheel.changes.repair.decide import decide
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.changes.stamp import guard, stamp
from cuwheel.device_code.survey import survey
from cuwheel.errors import ToolError, ToolTimeoutError
from cuwheel.machine import fleet
from cuwheel.machine.system import TEGRA_RELEASE
from cuwheel.machine.world import World
from cuwheel.support import codec, files, log, masking, process, system_calls
from cuwheel.support.finding import finding
from cuwheel.toolchains import store as store_
from cuwheel.toolchains import toolchain
from cuwheel.wheel import file
from cuwheel.wheel.file import WheelFile
from cuwheel_core.device_code.libraries import Platform
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.support import wording
from cuwheel_core.wheel.tags import WheelName, platform_of

if TYPE_CHECKING:
    from cuwheel.building.recording.calls import Record
    from cuwheel.building.recording.session import Session
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.support.finding import Finding

    BuildFunction: TypeAlias = Callable[[DecidedJob, BuildPlan, PackageSource], Built]

_REFRESH_S = 0.3
_SHOWN = 2  # of what is being compiled at the same time
_STEP = re.compile(r"^\s*\[\s*(\d+)/(\d+)\]")  # ninja's
_SHARE = re.compile(r"^\s*\[\s*(\d+)%\]")  # make's, as CMake writes it


@contextlib.contextmanager
def execute_job(job: DecidedJob, plan: BuildPlan, requirements: PackageSource, build: BuildFunction) -> Iterator[Built]:
    """What became of a job. Its folder is ours until the block ends: another build of the same job waits.

    `build`: how it is built where it must be, as `build_job` does it.
    """
    with workspace.hold_folder(job.folder):
        if requirements.locked is not None:  # another lock may give another wheel
            inputs = [job.key, sorted(each.sha256 for each in requirements.locked)]
            job = replace(job, key=files.sha256_of(codec.encode(inputs)))
        earlier = None if plan.request.rebuild else workspace.earlier_result(job.folder, job.key)
        if earlier and (earlier.requirements or not requirements.kept):
            log.info("%s: from the cache, nothing that goes into it has changed (--rebuild builds it anew)", job.id)
            yield replace(earlier, resumed=True)
            return
        workspace.forget_result(job.folder)
        built = build(job, plan, requirements)
        if built.wheel and not plan.request.keep:
            workspace.note_result(job.folder, built)
        yield built
        if built.wheel and not plan.request.keep:
            workspace.release_folder(job.folder)


def build_job(job: DecidedJob, plan: BuildPlan, requirements: PackageSource) -> Built:
    """A job built from nothing, in its folder, which the caller holds."""
    workspace.clean_folder(job.folder)
    try:
        return _Work(job, plan, requirements).run()
    finally:  # ninja starts compilers in groups of their own, and those survive it
        workspace.end_leftovers(job.folder)


class _Phases:
    """How long each took. `name`: the one that is running, or was last. `before`: seconds that the job took so far."""

    def __init__(self, before: float = 0.0) -> None:
        self.began = time.monotonic() - before
        self.name = ""
        self.done: list[Phase] = []

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began, self.name = time.monotonic(), name
        try:
            yield
        finally:
            self.done.append(Phase(name=name, began=began - self.began, seconds=time.monotonic() - began))


class _Work:
    """A job from its source to the backend's wheel."""

    def __init__(self, job: DecidedJob, plan: BuildPlan, requirements: PackageSource) -> None:
        self.job, self.plan, self.requirements = job, plan, requirements
        self.log = workspace.new_log(job.folder)
        self.log.touch()
        self.phases = _Phases()
        self.recorded = 0.0
        self.others: dict[str, str] = {}
        self.server: sccache.Server | None = None
        self.no_cache = ""
        self.session: Session | None = None
        self.step = ""
        self.installer: Installer | None = None

    def run(self) -> Built:
        problem, wheel, cached = None, None, None
        with self._showing_progress(), contextlib.ExitStack() as stack:
            try:
                wheel = self._phases(stack)
            except CuwheelError as error:
                problem = self._problem_of(error)
            except OSError as error:
                problem = self._problem_of(UnreadableError.from_os(error, hint=store_.NO_SPACE))
            finally:
                if self.session:
                    self.session.finish(0 if wheel else 1)
            if self.server:
                hits, misses = self.server.counted() or (0, 0)
                cached = Cached(hits=hits, misses=misses)
            elif self.no_cache:
                cached = Cached(problem=self.no_cache)
        record = self.job.folder / "record"
        return Built(
            key=self.job.key,
            log=str(self.log),
            wheel=str(wheel or ""),
            sha256=files.sha256(wheel) if wheel else "",
            phases=tuple(self.phases.done),
            seconds=time.monotonic() - self.phases.began,
            record=str(record) if record.is_dir() else "",
            recorded=self.recorded,
            others=self.others,
            requirements=self.installer.used if self.installer else (),
            cached=cached,
            problem=problem,
        )

    def _phases(self, stack: contextlib.ExitStack) -> Path:
        job = self.job
        with self._timed("source"):
            sources.copy_tree(self.plan.tree, job.copy)
        with self._timed("environment"):
            shell = Shell(
                toolkit=job.toolchain.toolkit,
                folder=job.folder,
                log=self.log,
                environ=job.environ,
                deadline=self.phases.began + self.plan.table.timeout,
                on_line=self._heed,
            )
            for name, place in job.links if os.name == "posix" else ():  # elsewhere their folders are on PATH
                (job.folder / "bin" / name).symlink_to(place)
            offline = self.plan.request.offline
            interpreter = environment.make_environment(job, shell, offline=offline)
            if job.toolchain.toolkit.target:
                crossing.write_files(job, interpreter, environment.python_headers(interpreter))
            made = environment.project_builder(job, shell, interpreter)
            self.installer = Installer(job=job, shell=shell, source=self.requirements, offline=offline)
            self.installer.install(interpreter, made.build_system_requires | set(job.requires))
            if self.plan.table.cache:
                cache = compiler_cache(job, self.plan.store.folder / "sccache")
                self.server, self.no_cache = stack.enter_context(cache)
            self.session = stack.enter_context(_recorded(job, self.server))
            self.recorded = time.monotonic() - self.phases.began
            if self.session:
                shell.environ = dict(self.session.environ)
            self.installer.install(interpreter, environment.backend_requires(made, job))
            self.others = environment.installed_versions(job.folder / "venv")
        if job.before:
            with self._timed("before"):
                for command in job.before:
                    shell.run(["sh", "-ec", command], cwd=job.source)
        with self._timed("build"):
            return environment.keep_wheel(environment.build_wheel(made, job), job.folder / "wheel")

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        self.step = ""
        log.debug("%s: %s", self.job.id, name)
        with self.phases.timed(name):
            yield

    def _heed(self, line: str) -> None:
        """What ninja or make says of how far it is."""
        if match := _STEP.match(line):
            self.step = f"{match[1]} of {match[2]} files"
        elif match := _SHARE.match(line):
            self.step = f"{match[1]} %"

    @contextlib.contextmanager
    def _showing_progress(self) -> Iterator[None]:
        """How far it is, a few times a second: a compiler that takes minutes prints nothing."""
        ended = threading.Event()

        def show(progress: log.Progress) -> None:
            while not ended.wait(_REFRESH_S):
                progress.show(self._now())

        with log.progress(self.job.id) as progress:
            refresher = threading.Thread(target=show, args=[progress], daemon=True)
            refresher.start()
            try:
                yield
            finally:
                ended.set()
                refresher.join()

    def _now(self) -> str:
        """How far it is, what is being compiled and for how long: the longest first, which is what it waits for."""
        since = time.monotonic() - self.phases.began
        parts = [f"{self.phases.name} {self.step}".strip()]
        if self.session:
            now = self.session.progress()
            if now.calls_ended and not self.step:
                parts[0] += f" {now.calls_ended} compiler calls"
            parts += wording.first_few(now.running, _SHOWN, lambda each: f"{each[0]} for {wording.duration(each[1])}")
        return f"{wording.duration(round(since))}: {', '.join(parts)}"

    def _problem_of(self, error: CuwheelError) -> Problem:
        if isinstance(error, ToolTimeoutError):
            limit = self.plan.table.timeout
            return Problem(
                phase=self.phases.name,
                what=f"it took longer than {limit:g} s and was stopped",
                kind="time",
                hint="give it more time with --set timeout=SECONDS; the log shows how far it got",
            )
        if isinstance(error, ToolError):  # the log has what it said
            return Problem(phase=self.phases.name, what=error.message.splitlines()[0], kind="program", hint=error.hint)
        return Problem(phase=self.phases.name, what=error.message, hint=error.hint)


@contextlib.contextmanager
def _recorded(job: DecidedJob, cache: sccache.Server | None) -> Iterator[Session | None]:
    """Every compiler call, and its progress. Nothing is recorded inside a container."""
    if job.toolchain.prefix:
        yield None
        return
    options = RecordOptions(
        launcher=(cache.client,) if cache else (),
        archs=job.force_archs,
        module_ids=job.module_ids,
        phases=cache is None,  # its times would be of the cache, and its flag unknown to it
        way="path" if os.name == "nt" else "auto",  # what is watched there is one command, and these are several
    )
    environ = {**job.environ, **(cache.environ if cache else {})}
    command = ("cuwheel", "build", job.id)
    with session.recording(job.folder / "record", command, environ, job.source, options) as made:
        yield made


# A compiler cache for a job: tried with the job's nvcc before anything relies on it.

_TRIAL_S = 300.0
_TRIAL = "__global__ void trial(int *to) { *to = 1; }\n"


@contextlib.contextmanager
def compiler_cache(job: DecidedJob, folder: Path) -> Iterator[tuple[sccache.Server | None, str]]:
    """A server, or why there is none: a cache that does not work must not stop the build.

    `folder`: where results are kept, for all jobs.
    """
    if job.toolchain.prefix:
        yield None, "the compiler cache does not work inside a container"
        return
    with contextlib.ExitStack() as stack:
        try:
            log = job.folder / "logs" / "sccache.txt"
            made = stack.enter_context(sccache.serving(folder, log, job.environ))
            problem = _try_cache(job, made)
        except CuwheelError as error:
            problem = f"{error.message}: {error.hint}" if error.hint else error.message
        yield (None, problem) if problem else (made, "")


def _try_cache(job: DecidedJob, made: sccache.Server) -> str:
    """Whether it takes this nvcc: asked with a kernel of one line, for a version of either may be new to the other."""
    nvcc = toolchain.nvcc_of(job.toolchain.toolkit)
    with tempfile.TemporaryDirectory(dir=job.folder / "tmp") as place:
        Path(place, "trial.cu").write_text(_TRIAL, encoding="utf-8")
        words = [made.client, nvcc, "-c", "trial.cu", "-o", "trial.o"]
        done = process.run(words, timeout=_TRIAL_S, check=False, env={**job.environ, **made.environ}, cwd=Path(place))
        if done.status or not Path(place, "trial.o").exists():
            output = (done.stderr or done.stdout).strip().splitlines()
            return f"sccache does not accept this nvcc: {output[-1] if output else f'status {done.status}'}"
    if not sum(made.counted() or ()):
        return "sccache does not know this nvcc and does not cache it"
    made.forget()
    return ""


# From a backend's wheel to the one in the output folder: name and description, repair, the gate, its place.


class PlacedWheels:
    """The wheels in the output folder, by name, each with the job that made it. Jobs may end at the same time."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._lock = threading.Lock()

    def claim(self, wheel: str, job: str) -> None:
        with self._lock:
            other = self._jobs.setdefault(wheel, job)
        if other != job:
            raise MalformedError(
                wheel, f"{other} made a wheel with the same name", hint="--set naming=local gives each its own name"
            )


def finish_job(plan: BuildPlan, job: DecidedJob, built: Built, placed: PlacedWheels) -> JobResult:
    """What became of a job, and its wheel where it belongs."""
    record, cached = record_of(built), built.cached
    about_cache: tuple[Finding, ...] = ()
    if cached and cached.problem:
        about_cache = (finding("no-compiler-cache", f"built without the cache: {cached.problem}"),)
    counted = (cached.hits, cached.misses) if cached and not cached.problem else None
    answer = replace(
        job_answer(job, "failed"),
        tools=tools_of(job.toolchain, built.others),
        phases=built.phases,
        seconds=built.seconds,
        calls=calls_of(record, built.recorded, counted),
        findings=(*job.notes, *about_cache, *built.findings),
        log=built.log,
        record=built.record,
    )
    result = JobResult(answer=answer, job=job, built=built, record=record, problem=built.problem)
    if built.problem:
        return result
    work = _Finishing(plan, result, job, built)
    try:
        return work.run(placed)
    except CuwheelError as error:
        problem = Problem(phase=work.phases.name, what=error.message, hint=error.hint)
        return replace(result, answer=replace(answer, phases=(*answer.phases, *work.phases.done)), problem=problem)


def record_of(built: Built) -> Record | None:
    """What was recorded of its compiler calls, if anything."""
    if not built.record:
        return None
    try:
        return reader.read_record(Path(built.record))
    except CuwheelError as error:
        log.debug("the record cannot be read: %s", error)
        return None


def arm64_distribution(provider: str, root: Path, target: str | None = None, *, l4t: bool = False) -> Platform | None:
    """Which of CUDA's two distributions for arm64 a toolkit is, by its files: an image of L4T is told from a server's.

    NVIDIA's archives have no such folder: which of them was taken depends on where. For a `target` that is another
    processor than this machine's that was decided when it was provided: `l4t`.
    """
    if (target or fleet.cpu_here()) != "aarch64":
        return None
    known: tuple[tuple[str, Literal["sbsa", "l4t"]], ...] = (("sbsa-linux", "sbsa"), ("aarch64-linux", "l4t"))
    found = [(name, root / "targets" / folder) for folder, name in known if (root / "targets" / folder).is_dir()]
    if len(found) == 1:
        return Platform(name=found[0][0], evidence=f"built with {found[0][1]}")
    if target:
        evidence = f"built with the arm64 libraries for {'Jetson (L4T)' if l4t else 'servers'} from {provider}"
        return Platform(name="l4t" if l4t else "sbsa", evidence=evidence)
    if provider != "redist":
        return None
    on_jetson = World.here().exists(TEGRA_RELEASE)
    return Platform(name="l4t" if on_jetson else "sbsa", evidence=f"built {'on a' if on_jetson else 'not on a'} Jetson")


class _Finishing:
    """Each step makes a new file, and the last one is a rename: nothing half-done is ever in the output folder."""

    def __init__(self, plan: BuildPlan, result: JobResult, job: DecidedJob, built: Built) -> None:
        self.plan, self.result, self.job, self.built = plan, result, job, built
        self.phases = _Phases(built.seconds)
        self.findings: list[Finding] = []

    def run(self, placed: PlacedWheels) -> JobResult:
        output = self.plan.request.output
        scratch = output / f".cuwheel-{self.job.folder.name}"  # ours alone: the job's folder is held
        try:
            shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
            scratch.mkdir(parents=True)
            with self.phases.timed("stamp"):
                wheel = self._stamped(Path(self.built.wheel), scratch / "stamp")
            with self.phases.timed("repair"):
                wheel = self._repaired(wheel, scratch / "repair")
            with self.phases.timed("gate"):
                found, passed = self._gate(wheel)
            good_place = self.job.folder / "part" if self.plan.table.merge else output
            place = self._placed(wheel, good_place if passed.succeeded else self.job.folder / "refused", placed)
        except OSError as error:
            raise UnreadableError.from_os(error, output, hint="free some space, or use another --output") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        planned = (*self.job.plan.archs, *self.job.plan.ptx)
        good: Outcome = "resumed" if self.built.resumed else "built"
        before = self.result.answer
        answer = replace(
            before,
            outcome=good if passed.succeeded else "refused",
            phases=(*before.phases, *self.phases.done),
            seconds=before.seconds + sum(each.seconds for each in self.phases.done),
            wheel=wheel_of(replace(found, target=str(place)), files.sha256(place), planned),
            listed=passed.listed,
            findings=(*before.findings, *self.findings, *passed.findings),
        )
        return replace(self.result, answer=answer)

    def _stamped(self, wheel: Path, to: Path) -> Path:
        to.mkdir()
        table, job = self.plan.table, self.job
        found = survey(str(wheel), detail="containers")
        release = found.distribution
        name = release.name if release else self.plan.project.name
        version = release.version if release else self.plan.project.version
        new_name = stamp.suffixed_name(name, job.cuda) if table.naming == "suffix" else None
        new_version = None
        if table.naming == "local" or table.label:
            new_version = stamp.local_version(version, job.cuda if table.naming == "local" else "", table.label)
        toolkit, root = job.toolchain.toolkit, Path(job.toolchain.toolkit.root)
        built_for = None
        if not toolkit.prefix:
            built_for = arm64_distribution(toolkit.provider, root, toolkit.target, l4t=toolkit.l4t)
        guarding = self._guard(found, f"{new_name or name} {new_version or version}")
        about = stamp.describe(
            found,
            job.plan,
            job.toolchain,
            sources=self.plan.tree.sha256,
            python=job.interpreter.version if job.interpreter else job.python,
            requires=tuple(map(masking.text, job.requires)),  # an address may have a login, and wheels are public
            build=jobs.build_record(job, self.built.others),
            conditions={each.machine: each.conditions for each in gate.verdicts_on(found, self._machines(), built_for)},
            built_for=built_for,
        )
        options = stamp.StampOptions(
            name=new_name, version=new_version, python_tag=table.python_tag, description=about, guard=guarding
        )
        return stamp.stamp(wheel, to, options)

    def _guard(self, found: Survey, whole: str) -> guard.Guard | None:
        """`whole`: the wheel's name and version as they will be."""
        table = self.plan.table.guard
        if not table.package and not table.inject:
            return None
        with WheelFile(Path(found.target)) as wheel:
            holding = [file.installed_path(each.path) or "" for each in found.libraries if each.device_code]
            named = found.distribution.name if found.distribution else ""
            package = table.package or guard.package_of(file.top_packages(wheel.members), named, holding)
            init = wheel.text(f"{stamp.package_folder(wheel.members, package)}__init__.py") or ""
        if about := guard.call_finding(init, package, inject=table.inject):
            self.findings.append(about)
        return guard.guard_for(found, package, message=table.message, wheel=whole, inject=table.inject)

    def _repaired(self, wheel: Path, to: Path) -> Path:
        """Asked for, it must succeed. Else it is done where it can be: a wheel for this system alone is one too.

        A manylinux tag that a backend wrote stays if it holds; one that does not is put right.
        """
        table = self.plan.table.repair
        name = WheelName.parse(wheel.name)
        made_for = [platform_of(each) for each in (name.platforms if name else ())]
        known = all(each.os in ("linux", "windows") for each in made_for)
        if table.enabled is False or (table.enabled is None and not known):
            return wheel
        toolchain, root = self.job.toolchain, Path(self.job.toolchain.root)
        places = () if toolchain.prefix else (root / "lib64", root / "lib", root / "bin")
        request = RepairRequest(
            wheel,
            policy=table.policy,
            exclude=table.exclude,
            requires=table.requires,
            cuda=self.job.cuda,
            libraries=tuple(each for each in places if each.is_dir()),
        )
        decision = decide(wheel, request)
        if table.enabled is None and any(each.glibc for each in made_for) and "tag" not in decision.changes:
            return wheel
        if decision.refused and table.enabled:
            problems = "; ".join(each.message for each in decision.findings if each.severity == "error")
            raise MalformedError(wheel.name, f"cannot be repaired: {problems}", hint="cuwheel repair WHEEL --dry-run")
        if decision.refused:
            self.findings += [
                replace(each, severity="warning") if each.severity == "error" else each for each in decision.findings
            ]
            return wheel
        to.mkdir()
        done = execute(decision, to)
        self.findings += done.findings
        return to / decision.file_name

    def _gate(self, wheel: Path) -> tuple[Survey, GateResult]:
        job, plan = self.job, self.plan
        found = survey(str(wheel), detail="containers")
        wanted = GateRequest(
            archs=job.plan.archs,
            ptx=job.plan.ptx,
            cuda=job.cuda,
            table=plan.table.gate,
            places=(str(job.folder), str(plan.tree.folder), str(plan.store.folder)),
            toolkit_root="" if job.toolchain.prefix and not job.toolchain.toolkit.archives else job.toolchain.root,
            record=self.result.record,
            machines=self._machines(),
            cpu=job.toolchain.toolkit.target or "",
        )
        return found, gate.examine(found, wanted)

    def _machines(self) -> tuple[Machine, ...]:
        """Those that the plan says this job serves."""
        served = {each.machine for each in self.job.plan.coverage}
        return tuple(each for each in self.plan.machines if each.name in served)

    def _placed(self, wheel: Path, folder: Path, placed: PlacedWheels) -> Path:
        """A rename within the output folder; a copy beside and a rename where it is refused and stays with its job."""
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / wheel.name
        if folder == self.plan.request.output:
            placed.claim(wheel.name, self.job.id)
            wheel.chmod(0o644)
            return system_calls.rename_over(wheel, place)
        return files.copy(wheel, place)
