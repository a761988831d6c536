"""One job carried out: a clean copy, an environment, the commands before, the wheel. A failure is a value too."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.building import environment, sources, workspace
from cuwheel.building.environment import Installer, Shell
from cuwheel.building.recording import cache_server, session
from cuwheel.building.values import Built, Cached, Phase, Problem
from cuwheel.errors import CuwheelError, ToolError, ToolTimeoutError, UnreadableError
from cuwheel.support import codec, files, log, process, wording
from cuwheel.toolchains import store as store_
from cuwheel.toolchains import toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.values import Job


# A compiler cache for a job: tried with the job's nvcc before anything relies on it.

_TRIAL_S = 300.0
_TRIAL = "__global__ void trial(int *to) { *to = 1; }\n"


class CompilerCache(Struct, frozen=True, kw_only=True):
    """`launcher` goes before nvcc; `environ` leads its client to this server. Both empty, with a reason, for none."""

    launcher: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    behind: cache_server.Server | None = None

    def counted(self) -> Cached:
        """What it did so far."""
        hits, misses = (self.behind.counted() if self.behind else None) or (0, 0)
        return Cached(hits=hits, misses=misses, problem=self.problem)


@contextlib.contextmanager
def compiler_cache(job: Job, folder: Path) -> Iterator[CompilerCache]:
    """`folder`: where results are kept, for all jobs. A cache that does not work must not stop the build."""
    if job.toolchain.prefix:
        yield CompilerCache(problem="the compiler cache does not work inside a container")
        return
    with contextlib.ExitStack() as stack:
        try:
            log = job.folder / "logs" / "sccache.txt"
            made = stack.enter_context(cache_server.serving(folder, log, job.environ))
            problem = _try_cache(job, made)
        except CuwheelError as error:
            problem = f"{error.message}: {error.hint}" if error.hint else error.message
        yield (
            CompilerCache(problem=problem)
            if problem
            else CompilerCache(launcher=(made.client,), environ=made.environ, behind=made)
        )


def _try_cache(job: Job, made: cache_server.Server) -> str:
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


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from cuwheel.building.environment import PackageSource
    from cuwheel.building.recording.session import Session
    from cuwheel.building.values import BuildContext, Job

    Build: TypeAlias = Callable[[Job, BuildContext, PackageSource], Built]

_REFRESH_S = 0.3
_SHOWN = 2  # of what is being compiled at the same time
_STEP = re.compile(r"^\s*\[\s*(\d+)/(\d+)\]")  # ninja's
_SHARE = re.compile(r"^\s*\[\s*(\d+)%\]")  # make's, as CMake writes it


@contextlib.contextmanager
def execute_job(job: Job, order: BuildContext, requirements: PackageSource, build: Build) -> Iterator[Built]:
    """What became of a job. Its folder is ours until the block ends: another build of the same job waits.

    `build`: how it is built where it must be, as `worked` does it.
    """
    with workspace.hold_folder(job.folder):
        job = replace(job, key=_key(job, requirements))
        there = None if order.request.rebuild else workspace.earlier_result(job.folder, job.key)
        if there and (there.requirements or not requirements.kept):
            log.info("%s: from the cache, nothing that goes into it has changed (--rebuild builds it anew)", job.id)
            yield replace(there, resumed=True)
            return
        workspace.forget_result(job.folder)
        built = build(job, order, requirements)
        if built.wheel:
            workspace.note_result(job.folder, built)
        yield built
        if built.wheel and not order.request.keep:
            workspace.release(job.folder)


def build_job(job: Job, order: BuildContext, requirements: PackageSource) -> Built:
    """A job built from nothing, in its folder, which the caller holds."""
    workspace.clean(job.folder)
    try:
        return _Work(job, order, requirements).through()
    finally:  # ninja starts compilers in groups of their own, and those survive it
        workspace.end_leftovers(job.folder)


def _key(job: Job, requirements: PackageSource) -> str:
    """With the files of a lock, where one says what is installed: another lock may give another wheel."""
    if requirements.locked is None:
        return job.key
    return files.sha256_of(codec.encode([job.key, sorted(each.sha256 for each in requirements.locked)]))


class _Work:
    """The phases of one job, timed."""

    def __init__(self, job: Job, order: BuildContext, requirements: PackageSource) -> None:
        self.job, self.order, self.requirements = job, order, requirements
        self.log = workspace.new_log(job.folder)
        self.log.touch()
        self.phases: list[Phase] = []
        self.began = time.monotonic()
        self.phase = ""
        self.recorded = 0.0
        self.others: dict[str, str] = {}
        self.server: CompilerCache | None = None
        self.session: Session | None = None
        self.step = ""
        self.installer: Installer | None = None

    def through(self) -> Built:
        built = Built(key=self.job.key, log=str(self.log))
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
                cached = self.server.counted()
        record = self.job.folder / "record"
        return replace(
            built,
            wheel=str(wheel or ""),
            sha256=files.sha256(wheel) if wheel else "",
            phases=tuple(self.phases),
            seconds=time.monotonic() - self.began,
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
            sources.copy_tree(self.order.tree, job.copy)
        with self._timed("environment"):
            shell = self._shell(job.environ)
            for name, place in job.links if os.name == "posix" else ():  # elsewhere their folders are on PATH
                (job.folder / "bin" / name).symlink_to(place)
            offline = self.order.request.offline
            interpreter = environment.make_environment(job, shell, offline=offline)
            made = environment.project_builder(job, shell, interpreter)
            self.installer = Installer(job=job, shell=shell, source=self.requirements, offline=offline)
            self.installer.install(interpreter, made.build_system_requires | set(job.requires))
            if self.order.table.cache:
                self.server = stack.enter_context(compiler_cache(job, self.order.store.folder / "sccache"))
            self.session = stack.enter_context(_recorded(job, self.server))
            self.recorded = time.monotonic() - self.began
            if self.session:
                shell.environ = dict(self.session.environ)
            self.installer.install(interpreter, environment.backend_requires(made, job))
            self.others = environment.installed_versions(job.folder / "venv")
        if job.before:
            with self._timed("before"):
                for command in job.before:
                    shell.run(["sh", "-ec", command], cwd=job.source)
        with self._timed("build"):
            return environment.keep(environment.build_wheel(made, job), job.folder / "wheel")

    def _shell(self, environ: dict[str, str]) -> Shell:
        return Shell(
            toolkit=self.job.toolchain.toolkit,
            folder=self.job.folder,
            log=self.log,
            environ=environ,
            deadline=self.began + self.order.table.timeout,
            on_line=self._heed,
        )

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        self.phase, self.step = name, ""
        log.debug("%s: %s", self.job.id, name)
        try:
            yield
        finally:
            self.phases.append(Phase(name=name, began=began - self.began, seconds=time.monotonic() - began))

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
        since = time.monotonic() - self.began
        parts = [f"{self.phase} {self.step}".strip()]
        if self.session:
            now = self.session.progress()
            if now.calls_ended and not self.step:
                parts[0] += f" {now.calls_ended} compiler calls"
            parts += wording.first_few(now.running, _SHOWN, lambda each: f"{each[0]} for {wording.duration(each[1])}")
        return f"{wording.duration(round(since))}: {', '.join(parts)}"

    def _problem_of(self, error: CuwheelError) -> Problem:
        if isinstance(error, ToolTimeoutError):
            limit = self.order.table.timeout
            return Problem(
                phase=self.phase,
                what=f"it took longer than {limit:g} s and was stopped",
                kind="time",
                hint="give it more time with --timeout SECONDS; the log shows how far it got",
            )
        if isinstance(error, ToolError):  # the log has what it said
            return Problem(phase=self.phase, what=error.message.splitlines()[0], kind="program", hint=error.hint)
        return Problem(phase=self.phase, what=error.message, hint=error.hint)


@contextlib.contextmanager
def _recorded(job: Job, cache: CompilerCache | None) -> Iterator[Session | None]:
    """Every compiler call, and its progress. Nothing is recorded inside a container."""
    if job.toolchain.prefix:
        yield None
        return
    wish = session.Wish(
        launcher=cache.launcher if cache else (),
        archs=job.force_archs,
        module_ids=job.module_ids,
        phases=not (cache and cache.launcher),  # its times would be of the cache, and its flag unknown to it
        way="path" if os.name == "nt" else "auto",  # what is watched there is one command, and these are several
    )
    environ = {**job.environ, **(cache.environ if cache else {})}
    command = ("cuwheel", "build", job.id)
    with session.recording(job.folder / "record", command, environ, job.source, wish) as made:
        yield made
