"""One run of a program, from its job to its end. A job is a plain value: where it runs is its caller's affair."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from cuwheel.errors import ToolError
from cuwheel.network import venvs
from cuwheel.proving.runner import checks, child
from cuwheel.proving.runner.output import Capture
from cuwheel.support import codec, files, log, masking, process, quoting
from cuwheel.tracing import attribution, events, session
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.support import bounded, opening
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.tags import WheelName
from cuwheel_lab.measuring import journal
from cuwheel_lab.measuring.journal import End, FailedCall, Host, Package, PageCache
from cuwheel_lab.measuring.programs import caller
from cuwheel_lab.measuring.trials_file import ColdSettings, Failing, FailureKind, Function

# Cold and warm starts: what is emptied before a trial, and what could not be.

CACHE = "CUDA_CACHE_PATH"
LOADING = "CUDA_MODULE_LOADING"
_DROP = Path("/proc/sys/vm/drop_caches")
_HOOK_S = 600.0
_LOOK_S = 0.1
_MOST_FILES = 20_000
_POWER_MODE = Path("/var/lib/nvpmodel/status")  # of a Jetson


class Prepared(NamedTuple):
    """`environ`: variables of the trial. `cold`: what was cold about it."""

    environ: dict[str, str]
    cold: journal.StartState


def warm_start(settings: ColdSettings, cache: Path, *, ready: bool) -> Prepared:
    """Prepares a JIT cache that stays from trial to trial. `ready`: a run before it has passed since all was cold."""
    environ = _start_variables(settings, cache)
    return Prepared(
        environ,
        journal.StartState(
            asked="warm",
            jit_cache="kept" if any(cache.iterdir()) else "empty",
            page_cache="kept",
            module_loading=_loading(settings),
            note="" if ready else "no run before it has passed, so it may not be warm",
        ),
    )


def cold_start(settings: ColdSettings, caches: Path, files: Iterable[Path], *, rebooted: bool) -> Prepared:
    """A start with all empty that may be emptied. `files`: what the program is made of."""
    place = caches / "cold"
    emptied = not settings.jit_cache or _empty(place)
    page_cache: PageCache
    page_cache, note = _drop_pages(files) if settings.page_cache else ("kept", "as asked")
    if not emptied:
        note = f"the JIT cache {place} could not be emptied; {note}"
    return Prepared(
        _start_variables(settings, place) if settings.jit_cache else _start_variables(settings, None),
        journal.StartState(
            asked="cold",
            jit_cache="the user's" if not settings.jit_cache else "empty" if emptied else "kept",
            page_cache=page_cache,
            rebooted=rebooted,
            module_loading=_loading(settings),
            note=note,
        ),
    )


def _start_variables(settings: ColdSettings, cache: Path | None) -> dict[str, str]:
    made = {LOADING: settings.module_loading.upper()} if settings.module_loading else {}
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        made[CACHE] = str(cache)
    return made


def _loading(settings: ColdSettings) -> str | None:
    return settings.module_loading or os.environ.get(LOADING)


def _empty(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return not any(folder.iterdir())
    return False


def _drop_pages(files: Iterable[Path]) -> tuple[PageCache, str]:
    """How far it went, and why not further."""
    try:
        os.sync()
        _DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        reason = f"{_DROP}: {error.strerror}"
    else:
        return "dropped", ""
    if not hasattr(os, "posix_fadvise"):
        return "kept", reason
    count = sum(_drop_pages_of(path) for path in files)
    return (
        ("files dropped", f"{reason}; the pages of {count} files were dropped one by one")
        if count
        else ("kept", reason)
    )


def _drop_pages_of(path: Path) -> bool:
    """Whether the kernel took it; pages that another process has mapped stay."""
    try:
        handle = opening.open_file(path, os.O_RDONLY | opening.AT_ONCE)
    except OSError:
        return False
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def program_files(
    command: tuple[str, ...], folder: Path | None, patterns: Iterable[str], source: Path
) -> Iterator[Path]:
    """What a program is made of, as far as it is known: itself, its files named as words, its environment."""
    program = shutil.which(command[0]) if command else None
    yield from ([Path(program)] if program else [])
    yield from (path for word in command[1:] if (path := source / word).is_file())
    found = (path for pattern in patterns for path in source.glob(pattern))
    inside = (path for path in (folder or Path(os.devnull)).rglob("*.so*"))
    for number, path in enumerate(path for each in (found, inside) for path in each if path.is_file()):
        if number >= _MOST_FILES:
            return
        yield path


def restart_machine(command: str, boot: str) -> None:
    """Ask the machine to start anew. It returns where it did and we still live, which only a test sees."""
    words = quoting.split(command)
    log.info("restarting the machine before a cold trial: %s", command)
    done = process.run(words, timeout=_HOOK_S, check=False)
    if done.status:
        raise ToolError(
            words, f"failed with status {done.status}, so there is no cold start", done.stdout + done.stderr
        )
    until = time.monotonic() + _HOOK_S
    while time.monotonic() < until:
        if journal.boot_id() != boot:
            return
        time.sleep(_LOOK_S)
    raise ToolError(
        words,
        f"succeeded, but the machine did not restart within {_HOOK_S:g} s",
        hint="cold.reboot must be a command that restarts the machine, such as 'sudo systemctl reboot'",
    )


def host_state() -> Host:
    """What the system tells of itself, for the price of three small files."""
    found = []
    for path in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            found.append(bounded.digits(path.read_text(encoding="ascii")) / 1000)
    return Host(memory_available=_available(), temperature=max(found, default=None), power_mode=_power_mode())


def _available() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return bounded.digits(line.split()[1]) * 1024
    return None


def _power_mode() -> str | None:
    """The power mode of a Jetson; elsewhere the limit of the GPU's power says as much."""
    with contextlib.suppress(OSError):
        return _POWER_MODE.read_text(encoding="utf-8", errors="replace").strip()[:200] or None
    return None


# The Python environments that are measured: those that are there, and those made for the wheels of an axis.

_READY = "ready.json"
_LED_ASTRAY = ("PYTHONHOME", "PYTHONPATH")


class MeasuredEnvironment(Struct, frozen=True, kw_only=True):
    """`folder`: None for whatever Python is on PATH."""

    folder: str | None
    packages: tuple[Package, ...] = ()

    @property
    def python(self) -> str:
        if self.folder:
            return str(venvs.interpreter(Path(self.folder)))
        return shutil.which("python3") or sys.executable

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables as `activate` would set them."""
        if not self.folder:
            return dict(environ)
        kept = {name: value for name, value in environ.items() if name not in _LED_ASTRAY}
        path = os.pathsep.join(filter(None, [str(Path(self.python).parent), environ.get("PATH", os.defpath)]))
        return {**kept, "VIRTUAL_ENV": self.folder, "PATH": path}


def prepare_environment(env: str | None, install: Sequence[str], source: Path, to: Path) -> MeasuredEnvironment:
    """The environment with these wheels and requirements; `source`: from where files are named.

    Where there is a base it is not touched: the wheels lie in an environment of their own before it, without what they
    require, which the base has. Made once: a campaign that is resumed finds it again.
    """
    if not install:
        return MeasuredEnvironment(folder=env, packages=_packages(Path(env), {}) if env else ())
    wanted = [str(source / each) if _is_file(source / each) else each for each in install]
    hashes = {each: files.sha256(Path(each)) for each in wanted if _is_file(Path(each))}
    key = hashlib.sha256(repr((env, wanted, sorted(hashes.items()))).encode()).hexdigest()[:16]
    folder = to / key
    if not (folder / _READY).is_file():
        base = venvs.interpreter(Path(env)) if env else None
        version = venvs.version_of(base) if base else None
        if base and version is None:
            raise UnreadableError(base, "does not run", hint="check the environment: bin/python --version")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            interpreter = venvs.make(folder, venvs.find_python(version))
            if env:
                below = [str(site) for site in metadata.site_packages(Path(env))]
                for site in metadata.site_packages(folder):
                    (site / "cuwheel-base.pth").write_text("".join(f"{each}\n" for each in below), encoding="utf-8")
        except OSError as error:
            raise UnreadableError.from_os(error, folder) from error
        venvs.install(interpreter, list(wanted), dependencies=env is None)
        files.write(folder / _READY, codec.encode_any(wanted), durable=True)
    return MeasuredEnvironment(folder=str(folder), packages=_packages(folder, hashes))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a requirement is not a path
        return False


def _packages(folder: Path, hashes: Mapping[str, str]) -> tuple[Package, ...]:
    """`hashes`: of the wheels that were installed as files."""
    named = {
        (name.project, name.version): digest
        for path, digest in hashes.items()
        if (name := WheelName.parse(Path(path).name))
    }
    return tuple(
        Package(
            name=each.name,
            version=each.version,
            sha256=named.get((each.name, each.version)),
            record=files.sha256(listed) if (listed := each.info / "RECORD").is_file() else None,
        )
        for site in metadata.site_packages(folder)
        for each in metadata.distributions(site)
    )


_KILLED = 9  # SIGKILL, of which Windows has not even the name
_KEPT_OUTPUT = 4000
_LONGEST_NAME = 500
_LAST_KERNELS = 3


class Job(Struct, frozen=True, kw_only=True):
    """`trial`: its number in the journal. `environ`: all variables. `mark`: by which its processes are known."""

    trial: int
    command: tuple[str, ...]
    directory: str
    environ: dict[str, str] = field(default_factory=dict)
    timeout: float
    memory: int
    failure: Failing
    traced: bool
    mark: str


def function_command(python: str, function: Function) -> tuple[str, ...]:
    arguments = codec.encode(function.arguments).decode()
    return (python, caller.__file__, "once", function.file, function.name, arguments)


def can_trace(environ: Mapping[str, str]) -> bool:
    """Whether this machine's programs can be traced; that there is a GPU is the caller's question."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        session.environ_for(Path(os.curdir), environ)
    except CuwheelError:
        return False
    return True


def run_job(job: Job) -> End:
    """Whatever becomes of the program, nothing that it started is left."""
    capture = Capture((*job.failure.expect, *job.failure.forbid))
    limits = child.Limits(seconds=job.timeout, memory=job.memory, guarded=False)
    with contextlib.ExitStack() as stack:
        environ = job.environ
        place: Path | None = None
        if job.traced:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cuwheel-trace-")))
            environ = session.environ_for(place, environ)
        end = child.run_command(job.command, environ, job.directory, limits, capture, job.mark)
        if end.error:
            raise ToolError(job.command, f"could not be started: {end.error}", hint="check 'command' and 'directory'")
        kind, message = judge_end(job.failure, end, capture)
        failed_call = _failed_call(place) if place and kind else None
    ignored = kind if kind not in (*job.failure.kinds, None) else None
    return End(
        trial=job.trial,
        outcome="passed" if kind is None or ignored else kind,
        at=round(time.time(), 3),
        seconds=round(end.seconds, 4),
        status=end.status,
        memory=end.memory,
        message=message,
        output=masking.known(capture.whole.text()[-_KEPT_OUTPUT:], environ) if kind else "",
        ignored=ignored,
        failed_call=failed_call,
    )


def judge_end(failure: Failing, end: child.End, capture: Capture) -> tuple[FailureKind | None, str]:
    """How it failed and in which words: the gravest thing first."""
    if end.stopped == "timeout":
        return "timeout", f"did not end within {end.seconds:.1f} s and was stopped"
    if end.stopped == "processes":
        return "memory", "started more and more processes and was stopped"
    if end.stopped:
        return "memory", f"took {end.memory / 1e6:,.0f} MB and was stopped"
    status = end.status if end.status is not None else -_KILLED
    if status < 0:
        return "signal", f"ended by {checks.signal_name(-status) or f'signal {-status}'}"
    if status not in failure.status:
        return "status", f"ended with status {status}"
    found = capture.found()
    wrong = [f"did not print {text!r}" for text in failure.expect if text not in found]
    wrong += [f"printed {text!r}" for text in failure.forbid if text in found]
    if wrong:
        return "output", "; ".join(wrong)[:_LONGEST_NAME]
    problems = checks.number_problem({"number": failure.number, "tolerance": failure.tolerance}, capture)
    return ("result", problems[0]) if problems else (None, "")


def _failed_call(place: Path) -> FailedCall | None:
    """The first call that failed and was not dealt with."""
    found = attribution.attributed(events.read_events(place), succeeded=False)
    failures = [each for each in found.failures if not each.swallowed]
    if not failures:
        return None
    failure = failures[0]
    kernel = failure.demangled or failure.kernel
    return FailedCall(
        api=failure.api,
        code=failure.error.code,
        error=failure.error.name,
        kernel=kernel[:_LONGEST_NAME] if kernel else None,
        library=failure.library,
        last=tuple(each[:_LONGEST_NAME] for each in failure.last[:_LAST_KERNELS]),
    )
