"""A matrix of commands: read from a file that a person wrote, and run, each recorded into a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.building.recording import reader, replays, sccache, session
from cuwheel.building.recording.calls import COPIED_SOURCE
from cuwheel.building.recording.shims import RecordOptions
from cuwheel.errors import ConfigurationError, ToolError, ToolTimeoutError, UnavailableError, UsageError
from cuwheel.machine.compilers import nvcc_in
from cuwheel.support import codec, files, log, process, quoting
from cuwheel.support.answer import Answer
from cuwheel.support.cause import Cause
from cuwheel.toolchains import provide, toolchain
from cuwheel.toolchains.request import ToolchainRequest
from cuwheel.toolchains.toolchain import Setting
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_lab.measuring import axes as named_axes

_HINT = "cuwheel lab matrix --help shows such a file"
Choice = Literal["on", "off"]


class Value(Struct, frozen=True, kw_only=True):
    """One value of an axis. `words` stand for `{axis}` in the command; `toolkit`: a CUDA version, or a folder."""

    words: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    directory: str | None = None
    toolkit: str | None = None
    cache: Choice | None = None


class _File(Struct, frozen=True, kw_only=True):
    """`clean` is run before each; without it each has a copy of the folder, without what is in `leave_out`."""

    command: str
    axes: dict[str, Any]
    directory: str = "."
    clean: str | None = None
    copy: bool | None = None
    leave_out: tuple[str, ...] = (".git", "target", "build", "__pycache__")
    timeout: float = 3600.0
    environment: dict[str, str] = field(default_factory=dict)
    include: tuple[dict[str, str], ...] = ()
    exclude: tuple[dict[str, Any], ...] = ()


class Configuration(Struct, frozen=True, kw_only=True):
    """One cell of the matrix. `choices`: axis → the value's name. `directory`: below the matrix's own."""

    name: str
    choices: dict[str, str]
    command: tuple[str, ...]
    directory: str = "."
    environment: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    toolkit: str | None = None
    cache: Choice | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """`source`: the folder of the project. `clean`: words of the command that makes it as new, else copies are made."""

    file: str
    source: Path
    clean: tuple[str, ...]
    leave_out: tuple[str, ...]
    timeout: float
    axes: tuple[str, ...]
    configurations: tuple[Configuration, ...]


def load_matrix(path: Path) -> Plan:
    """All problems at once."""
    data = codec.read_configuration(path, _HINT)
    problems: list[str] = []
    file = codec.convert_or_list_problems(data, _File, "matrix", problems)
    if file is None:
        raise ConfigurationError(path, problems, _HINT)
    axes = dict(
        named_axes.read_axes(
            file.axes, "matrix", problems, lambda axis, given, where: _read_value(axis, given, where, problems)
        )
    )
    problems += _problems(file, axes, path.parent)
    if problems:
        raise ConfigurationError(path, problems, _HINT)
    configurations = tuple(_configurations(file, axes, path.parent, problems))
    if problems or not configurations:
        raise ConfigurationError(path, problems or ["nothing to run: everything is excluded"], _HINT)
    return Plan(
        file=str(path),
        source=(path.parent / file.directory).resolve(),
        clean=quoting.split(file.clean) if file.clean else (),
        leave_out=file.leave_out,
        timeout=file.timeout,
        axes=tuple(axes),
        configurations=configurations,
    )


def _read_value(axis: str, given: Any, where: str, problems: list[str]) -> Value | None:  # noqa: ANN401 - anything
    if isinstance(given, dict):
        return codec.convert_or_list_problems(given, Value, where, problems)
    if isinstance(given, str):
        # Two axes have a meaning of their own; of any other the text stands in the command.
        table = {axis: given} if axis in ("toolkit", "cache") else {"words": given}
        return codec.convert_or_list_problems(table, Value, where, problems)
    problems.append(f"{where}: expected text or a table, got {type(given).__name__}")
    return None


def _problems(file: _File, axes: Mapping[str, Mapping[str, Value]], folder: Path) -> Iterator[str]:
    words = {axis: {name: value.words for name, value in values.items()} for axis, values in axes.items()}
    yield from named_axes.word_problems(file.command, words, "matrix")
    if problem := named_axes.unsplit(file.clean or ""):
        yield f"matrix.clean: {problem}"
    if not file.command.strip():
        yield "matrix.command: it is empty"
    if not 0 < file.timeout < float("inf"):
        yield "matrix.timeout: must be a positive number of seconds"
    if file.clean and file.copy:
        yield "matrix: 'clean' and 'copy' cannot be used together"
    if file.copy is False and not file.clean:
        yield "matrix: without 'copy', give a 'clean' command that cleans the folder before each run"
    if not (folder / file.directory).is_dir():
        yield f"matrix.directory: no such folder: {folder / file.directory}"
    yield from named_axes.unknown("include", file.include, axes, "matrix")
    yield from named_axes.unknown("exclude", file.exclude, axes, "matrix")


def _configurations(
    file: _File, axes: Mapping[str, Mapping[str, Value]], folder: Path, problems: list[str]
) -> Iterator[Configuration]:
    chosen = named_axes.combinations(axes, file.include, file.exclude, "matrix", problems)
    for choices in chosen:
        values = {axis: axes[axis][name] for axis, name in choices.items()}
        command = named_axes.filled(file.command, {axis: value.words for axis, value in values.items()})
        environment = dict(file.environment)
        for value in values.values():
            environment |= value.environment
        directories = [value.directory for value in values.values() if value.directory is not None]
        toolkit = next((value.toolkit for value in values.values() if value.toolkit), None)
        if toolkit and ("/" in toolkit or "\\" in toolkit):  # a folder is taken from where the file is
            toolkit = str((folder / toolkit).resolve())
        configuration = Configuration(
            name=", ".join(choices.values()) or "the command",
            choices=dict(choices),
            command=command,
            directory=directories[-1] if directories else ".",
            environment=environment,
            unset=tuple(name for value in values.values() for name in value.unset),
            toolkit=toolkit,
            cache=next((value.cache for value in values.values() if value.cache), None),
        )
        if not configuration.command:
            problems.append(f"matrix.command: it is empty for {configuration.name}")
        yield configuration


# Runs the cells of a matrix, each recorded into a folder of its own; one that fails does not stop the others.

# `not-run`: its toolkit, its cache or its clean source could not be had; `problem` says why.
Result: TypeAlias = Literal["succeeded", "failed", "timeout", "not-run"]

_KILLED = -9
_NOT_STARTED = 127
_CLEAN_S = 600.0
_TAIL = 4096  # bytes of what a failed command printed
# What takes compiler caches out of the way: ccache's, cargo's and CMake's manuals.
_NO_CACHE = {
    "CCACHE_DISABLE": "1",
    "RUSTC_WRAPPER": "",
    "CMAKE_C_COMPILER_LAUNCHER": "",
    "CMAKE_CXX_COMPILER_LAUNCHER": "",
    "CMAKE_CUDA_COMPILER_LAUNCHER": "",
}


class Run(Struct, frozen=True, kw_only=True):
    """How a cell ended. `record`, `log`: its folder and the command's whole output; empty where it was not run.

    `cache_hits`: of a compiler cache, where one was on.
    """

    configuration: str
    fingerprint: str
    result: Result
    status: int | None = None
    seconds: float = 0.0
    calls: int = 0
    failed_calls: int = 0
    cache_hits: int | None = None
    problem: str = ""
    record: str = ""
    log: str = ""

    @property
    def outcome(self) -> str:
        """What became of it in words, for the log."""
        return f"{self.result} after {self.seconds:.1f} s" if self.result != "not-run" else f"not run: {self.problem}"


def fingerprint(plan: Plan, configuration: Configuration) -> str:
    """A hash of all that makes a run what it is: a resumed matrix takes over what has the same."""
    whole = (configuration, plan.clean, plan.leave_out, plan.timeout, str(plan.source))
    return files.sha256_of(codec.encode(whole))[:16]


def folder_name(plan: Plan, configuration: Configuration) -> str:
    number = plan.configurations.index(configuration) + 1
    words = "".join(each if each.isalnum() or each in ".-" else "-" for each in configuration.name)
    return f"{number:03}-{'-'.join(filter(None, words.split('-')))[:60]}"


def run_matrix(
    plan: Plan, folder: Path, finished: Container[str], environ: Mapping[str, str], options: RecordOptions | None = None
) -> Iterator[tuple[int, Run]]:
    """Each configuration whose fingerprint is not among the finished ones, by its place in the plan."""
    with log.progress("configurations", len(plan.configurations)) as progress:
        for index, each in enumerate(plan.configurations):
            progress.show(each.name)
            if fingerprint(plan, each) in finished:
                log.info("%s: finished by an earlier run", each.name)
            else:
                ended = run_configuration(plan, each, folder / folder_name(plan, each), environ, options)
                log.info("%s: %s", each.name, ended.outcome)
                yield index, ended
            progress.advance()


def run_configuration(
    plan: Plan, configuration: Configuration, to: Path, environ: Mapping[str, str], options: RecordOptions | None = None
) -> Run:
    """In `to`, which is made anew: the record, the log, and a copy of the source where one is made."""
    bare = Run(configuration=configuration.name, fingerprint=fingerprint(plan, configuration), result="not-run")
    server: sccache.Server | None = None
    with contextlib.ExitStack() as stack:
        try:
            _make_anew(to)
            setting = {name: value for name, value in environ.items() if name not in configuration.unset}
            if configuration.toolkit:
                setting = toolchain.apply_settings(_toolkit_settings(configuration.toolkit), setting)
            if configuration.cache == "off":
                setting |= _NO_CACHE
            setting |= configuration.environment
            source = _clean_source(plan, to, setting)
            cwd = source / configuration.directory
            if not cwd.is_dir():
                raise UnreadableError(cwd, "no such folder")
            options = options or RecordOptions()
            if configuration.cache == "on":
                server = stack.enter_context(sccache.serving(to.parent / "sccache", to / "sccache.log", setting))
                setting, options = setting | server.environ, replace(options, launcher=(server.client,))
        except CuwheelError as error:
            return replace(bare, problem=error.message)
        began = time.monotonic()
        result, status = _record_command(configuration.command, to, cwd, setting, options, plan.timeout)
        seconds = time.monotonic() - began
        hits = server.hits() if server else None
    record = reader.read_record(to / "record")
    if source != plan.source and result == "succeeded":
        shutil.rmtree(source, ignore_errors=True)  # of one that failed it is kept, to run its calls again
    return replace(
        bare,
        result=result,
        status=status,
        seconds=round(seconds, 3),
        calls=len(record.calls),
        failed_calls=sum(call.failed for call in record.calls),
        cache_hits=hits,
        record=str(to / "record"),
        log=str(to / "output.log"),
    )


def _make_anew(to: Path) -> None:
    try:
        if to.exists():
            shutil.rmtree(to)
        to.mkdir(parents=True)
    except OSError as error:
        raise UnreadableError.from_os(error, to) from error


def _record_command(
    command: Sequence[str], to: Path, cwd: Path, environ: Mapping[str, str], options: RecordOptions, timeout: float
) -> tuple[Result, int | None]:
    output = to / "output.log"
    with session.recording(to / "record", command, environ, cwd, options) as recording:
        try:
            status = process.follow(recording.command, output=output, timeout=timeout, env=recording.environ, cwd=cwd)
        except ToolTimeoutError:
            recording.finish(_KILLED)
            return "timeout", None
        except ToolError as error:
            recording.finish(_NOT_STARTED)
            with output.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(error.message + "\n")
            return "failed", _NOT_STARTED
        recording.finish(status)
    return ("failed" if status else "succeeded"), status


# Where, and with what


def _toolkit_settings(wanted: str) -> tuple[Setting, ...]:
    """A folder as it is; a version from the machine or the cache, or installed into it."""
    if "/" not in wanted and "\\" not in wanted:
        made = provide.provide(ToolchainRequest(wanted))
        if made.prefix:
            raise UnavailableError(f"CUDA {wanted} is in a container, but the command is not")
        return made.settings
    nvcc = nvcc_in(Path(wanted))
    if nvcc is None:
        raise UnavailableError(f"{wanted} is not a CUDA toolkit: it has no nvcc in its bin folder")
    roots = (Setting(name=name, value=wanted) for name in ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT"))
    return (
        *roots,
        Setting(name="CUDACXX", value=str(nvcc)),
        Setting(name="PATH", value=str(nvcc.parent), how="prepend"),
    )


def _clean_source(plan: Plan, to: Path, environ: Mapping[str, str]) -> Path:
    """The project's folder, cleaned; or a copy of it."""
    if not plan.clean:
        left_out = shutil.ignore_patterns(*plan.leave_out)
        own = to.parent.resolve()

        def ignored(folder: str, names: list[str]) -> set[str]:
            # Neither what this very matrix writes, nor sockets and the like.
            odd = {name for name in names if _is_odd(Path(folder, name)) or Path(folder, name).resolve() == own}
            return odd | left_out(folder, names)

        target = to / COPIED_SOURCE
        try:
            shutil.copytree(plan.source, target, symlinks=True, ignore=ignored)
        except (OSError, shutil.Error) as error:
            raise UnreadableError(plan.source, f"cannot be copied: {error}") from error
        return target
    output = to / "clean.log"
    status = process.follow(plan.clean, output=output, timeout=_CLEAN_S, env=environ, cwd=plan.source)
    if status:
        raise ToolError(
            plan.clean, f"failed with status {status}, so the folder is not clean", files.tail(output, _TAIL)
        )
    return plan.source


def _is_odd(path: Path) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


STATE_FILE = "matrix.json"


class Cell(Struct, frozen=True, kw_only=True):
    """`choices`: axis → value. `causes`: what `explain` says of a failure, best first. `again`: to look at it again.

    `compare`: the command that finds what makes it fail, against the nearest configuration that works, or else this
    environment; `difference`: what that found, in a sentence.
    """

    choices: dict[str, str]
    command: tuple[str, ...]
    run: Run | None = None
    causes: tuple[Cause, ...] = ()
    error: str = ""
    again: str = ""
    compare: str = ""
    difference: str = ""


class Matrix(Answer, frozen=True, kw_only=True):
    """`cells`: in the order of the file; `run` is None where it is still to do, as with --dry-run."""

    schema: Literal["cuwheel.matrix/1"] = "cuwheel.matrix/1"
    file: str
    folder: str
    axes: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def succeeded(self) -> bool:
        return all(cell.run is None or cell.run.result == "succeeded" for cell in self.cells)


def planned_matrix(plan: Plan, file: str, folder: Path) -> Matrix:
    """Before anything was run."""
    cells = (Cell(choices=each.choices, command=each.command) for each in plan.configurations)
    return Matrix(file=file, folder=str(folder), axes=plan.axes, cells=tuple(cells))


def with_run(answer: Matrix, index: int, run: Run, causes: tuple[Cause, ...], error: str) -> Matrix:
    """`index`: of the cell. `causes`, `error`: why it failed, if it did."""
    again = quoting.here(["cuwheel", "record", "replay", _near(run.record)]) if run.failed_calls else ""
    cells = list(answer.cells)
    cells[index] = replace(cells[index], run=run, causes=causes, error=error, again=again)
    # One that comes later may be nearer to one that failed before.
    return replace(answer, cells=tuple(replace(each, compare=_compare(each, cells)) for each in cells))


def _compare(cell: Cell, cells: Sequence[Cell]) -> str:
    if not cell.run or not cell.run.failed_calls:
        return ""
    good = _nearest(cell, cells)
    words = ["cuwheel", "record", "diff", _near(cell.run.record)]
    return quoting.here([*words, _near(good.record)] if good else words)


def _nearest(cell: Cell, cells: Sequence[Cell]) -> Run | None:
    """The run that worked and differs in the fewest choices; None where nothing worked."""
    succeeded = [(each, each.run) for each in cells if each.run and each.run.result == "succeeded" and each.run.calls]
    found = min(succeeded, key=lambda pair: len(pair[0].choices.items() ^ cell.choices.items()), default=None)
    return found[1] if found else None


def with_comparisons(answer: Matrix) -> Matrix:
    """What makes each failed, tried out. One that cannot be compared does not stop the others."""
    return replace(answer, cells=tuple(_with_comparison(each, answer.cells) for each in answer.cells))


def _with_comparison(cell: Cell, cells: Sequence[Cell]) -> Cell:
    if not cell.run or not cell.compare:
        return cell
    good = _nearest(cell, cells)
    try:
        made = replays.compare_environments(cell.run.record, good.record if good else None)
    except CuwheelError as error:
        return replace(cell, difference=f"cannot be compared: {error.message}")
    if made.blame and made.blame.verdict in ("found", "unfinished"):
        return replace(cell, difference=made.blame.answer)
    sentence = made.blame.answer if made.blame else "Program, folder, arguments and environment are the same."
    return replace(cell, difference=" ".join((sentence, *(f"{note}." for note in made.notes))))


def _near(path: str) -> str:
    """The path from the current folder, if it is below."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def with_earlier_runs(answer: Matrix, plan: Plan, *, resume: bool) -> Matrix:
    """The answer with what an earlier run has finished already. Makes the folder."""
    earlier = _earlier(Path(answer.folder), resume=resume)
    cells = zip(plan.configurations, answer.cells, strict=True)
    return replace(answer, cells=tuple(earlier.get(fingerprint(plan, each), cell) for each, cell in cells))


def finished_runs(answer: Matrix) -> frozenset[str]:
    """Fingerprints of what need not be run."""
    return frozenset(each.run.fingerprint for each in answer.cells if each.run)


def _earlier(folder: Path, *, resume: bool) -> dict[str, Cell]:
    """Earlier runs by fingerprint; none in a new folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return {}
        if not resume:
            raise UsageError(f"{folder} is not empty", hint="continue it with --resume, or choose another with -o")
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    before = codec.noted(folder / STATE_FILE, Matrix)
    cells = before.cells if before else ()
    return {each.run.fingerprint: each for each in cells if each.run and each.run.result != "not-run"}
