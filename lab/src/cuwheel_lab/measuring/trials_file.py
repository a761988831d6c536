"""TRIALS.toml, which a person wrote: what is run, under which conditions, how often, and what counts as a failure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field

from cuwheel.errors import ConfigurationError
from cuwheel.machine import fleet
from cuwheel.network import venvs
from cuwheel.support import codec, files
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.wording import read_size
from cuwheel_lab.measuring import axes as named_axes

# How a trial may fail: it ended with another status or by a signal, took too long or too much memory, printed what it
# should not, gave a wrong result, or the machine went down under it.
FailureKind: TypeAlias = Literal["status", "signal", "timeout", "memory", "output", "result", "machine"]
StartKind: TypeAlias = Literal["cold", "warm"]
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
MOST_REPEATS = 100_000
_HINT = "cuwheel lab trials --help shows such a file"
ON = "on"  # the axis that a file's own `on` makes
_WHERE = "trials"
_LONGEST_S = 366 * 24 * 3600.0
_MEMORY = 64 << 30


class _Setting(Struct, frozen=True, kw_only=True):
    """Of the file, of a value, and of a condition, which is the file's with those of its values.

    `install`: requirements and wheels, into an environment made for them. `env`: a Python environment that is there.
    """

    environment: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    env: str | None = None


class Value(_Setting, frozen=True, kw_only=True):
    """One value of an axis. `words` stand for `{axis}` in the command, or are an argument of the function.

    `on`: the GPU that the trials with it need.
    """

    words: str = ""
    directory: str | None = None
    start: StartKind | None = None
    on: str | None = None


class ColdSettings(Struct, frozen=True, kw_only=True):
    """What is made cold before a cold trial. `reboot`: a command that restarts the machine.

    `files`: whose pages are dropped where the whole page cache cannot be; patterns, from the folder of the file.
    """

    jit_cache: bool = True
    page_cache: bool = True
    module_loading: Literal["lazy", "eager"] | None = None
    files: tuple[str, ...] = ()
    reboot: str | None = None


class Failing(Struct, frozen=True, kw_only=True):
    """What counts as a failure. `kinds`: those that do; a trial that ends otherwise has passed.

    `status`: those of success. `expect`, `forbid`: texts in the output. `number`: the last one that is printed.
    """

    kinds: tuple[FailureKind, ...] = KINDS
    status: tuple[int, ...] = (0,)
    expect: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    number: float | None = None
    tolerance: float = 0.0


class _File(_Setting, frozen=True, kw_only=True):
    command: str | None = None
    function: str | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    vary: Literal["all", "one at a time"] = "all"
    repeats: int = 10
    seed: int | None = None
    timeout: float = 600.0
    memory: str | None = None
    directory: str = "."
    trace: bool | None = None
    failure: Failing = field(default_factory=Failing)
    cold: ColdSettings = field(default_factory=ColdSettings)
    include: tuple[dict[str, str], ...] = ()
    exclude: tuple[dict[str, Any], ...] = ()
    on: tuple[str, ...] = ()


class Function(Struct, frozen=True, kw_only=True):
    """A function of a Python file, called with these arguments."""

    file: str
    name: str
    arguments: dict[str, str]


class Condition(_Setting, frozen=True, kw_only=True):
    """One combination of the axes' values. `choices`: axis → the value's name. `on`: the capability of its GPU."""

    choices: dict[str, str]
    command: tuple[str, ...] = ()
    function: Function | None = None
    directory: str = "."
    start: StartKind | None = None
    on: str | None = None

    @property
    def name(self) -> str:
        return ", ".join(self.choices.values()) or "the command"

    @property
    def words(self) -> tuple[str, ...]:
        """What is run, as people read it."""
        if self.function is None:
            return self.command
        arguments = (f"{name}={value}" for name, value in self.function.arguments.items())
        return (f"{self.function.file}:{self.function.name}", *arguments)


class Plan(Struct, frozen=True, kw_only=True):
    """`folder`: that of the file, from which everything else is named. `trace`: None for where there is a GPU."""

    file: str
    folder: str
    axes: dict[str, tuple[str, ...]]
    conditions: tuple[Condition, ...]
    repeats: int
    seed: int | None
    timeout: float
    memory: int
    trace: bool | None
    failure: Failing
    cold: ColdSettings

    @property
    def fingerprint(self) -> str:
        """A hash of all that makes a trial what it is: not of how often and in which order."""
        whole = (self.conditions, self.timeout, self.memory, self.trace, self.failure, self.cold)
        return hashlib.sha256(repr(whole).encode()).hexdigest()[:16]


def load_trials(path: Path) -> Plan:
    """All problems at once."""
    data = codec.read_configuration(path, _HINT)
    problems: list[str] = []
    # One requirement, one status or one text may stand without a list.
    made = _as_lists(data, "install", "unset", "on")
    if isinstance(made.get("failure"), dict):
        made["failure"] = _as_lists(made["failure"], "kinds", "status", "expect", "forbid")
    if isinstance(made.get("cold"), dict):
        made["cold"] = _as_lists(made["cold"], "files")
    file = codec.convert_or_list_problems(made, _File, _WHERE, problems)
    if file is None:
        raise ConfigurationError(path, problems, _HINT)
    axes = dict(
        named_axes.read_axes(
            file.axes, _WHERE, problems, lambda axis, given, where: _value(axis, given, where, problems)
        )
    )
    if file.on and ON not in axes:
        axes[ON] = {name: Value(on=name) for name in file.on}
    problems += _problems(file, axes, path.parent)
    conditions = _conditions(file, axes, files.absolute(path.parent), problems) if not problems else []
    if problems or not conditions:
        raise ConfigurationError(path, problems or ["nothing to run: everything is excluded"], _HINT)
    return Plan(
        file=str(files.absolute(path)),
        folder=str(files.absolute(path.parent)),
        axes={axis: tuple(values) for axis, values in axes.items()},
        conditions=tuple(conditions),
        repeats=file.repeats,
        seed=file.seed,
        timeout=file.timeout,
        memory=read_size(file.memory or "") or _MEMORY,
        trace=file.trace,
        failure=file.failure,
        cold=file.cold,
    )


def _as_lists(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: [each] if key in names and isinstance(each, (str, int)) else each for key, each in table.items()}


def _value(axis: str, given: Any, where: str, problems: list[str]) -> Value | None:  # noqa: ANN401 - anything
    """A value: of the axis `start` the text says how, of any other it stands in the command."""
    if isinstance(given, dict):
        return codec.convert_or_list_problems(_as_lists(given, "install", "unset"), Value, where, problems)
    if isinstance(given, (str, int, float)) and not isinstance(given, bool):
        return codec.convert_or_list_problems(
            {"start" if axis == "start" else "words": str(given)}, Value, where, problems
        )
    problems.append(f"{where}: expected text, a number or a table, got {type(given).__name__}")
    return None


def _problems(file: _File, axes: Mapping[str, Mapping[str, Value]], folder: Path) -> Iterator[str]:
    if (file.command is None) == (file.function is None):
        yield f"{_WHERE}: give either 'command' or 'function'"
    elif file.command is not None:
        words = {axis: {name: value.words for name, value in values.items()} for axis, values in axes.items()}
        yield from named_axes.word_problems(file.command, words, _WHERE)
        if not file.command.strip():
            yield f"{_WHERE}.command: it is empty"
    elif file.function is not None:
        path, colon, name = file.function.rpartition(":")
        if not colon or not name.isidentifier():
            yield f"{_WHERE}.function: {file.function!r} must be FILE:NAME, such as 'work.py:run'"
        elif not (folder / path).is_file():
            yield f"{_WHERE}.function: no such file: {folder / path}"
        yield from (f"{_WHERE}.axes.{axis}: not the name of an argument" for axis in axes if not axis.isidentifier())
    yield from _number_problems(file)
    if not (folder / file.directory).is_dir():
        yield f"{_WHERE}.directory: no such folder: {folder / file.directory}"
    for place in {file.env, *(value.env for values in axes.values() for value in values.values())} - {None}:
        if not (python := venvs.interpreter(folder / str(place))).exists():
            yield f"{_WHERE}: {place} is not a Python environment: it has no {'/'.join(python.parts[-2:])}"
    if file.cold.reboot is not None and (problem := named_axes.unsplit(file.cold.reboot) or not file.cold.reboot):
        yield f"{_WHERE}.cold.reboot: {problem if isinstance(problem, str) else 'it is empty'}"
    if file.on and ON in file.axes:
        yield f"{_WHERE}.on: an axis is called '{ON}' too"
    for name in {value.on for values in axes.values() for value in values.values() if value.on}:
        try:
            if fleet.from_gpu(name).capability is None:
                yield f"{_WHERE}.on: {name!r} has no compute capability"
        except CuwheelError as error:
            yield f"{_WHERE}.on: {error.message}"
    yield from named_axes.unknown("include", file.include, axes, _WHERE)
    yield from named_axes.unknown("exclude", file.exclude, axes, _WHERE)


def _number_problems(file: _File) -> Iterator[str]:
    if not 1 <= file.repeats <= MOST_REPEATS:
        yield f"{_WHERE}.repeats: must be from 1 to {MOST_REPEATS:,}"
    if not 0 < file.timeout <= _LONGEST_S:
        yield f"{_WHERE}.timeout: must be a positive number of seconds, at most a year"
    if file.memory is not None and not read_size(file.memory):
        yield f"{_WHERE}.memory: {file.memory!r} is not a size, such as 500MB or 2GB"
    if not (math.isfinite(file.failure.tolerance) and file.failure.tolerance >= 0):
        yield f"{_WHERE}.failure.tolerance: must be 0 or more"
    if file.failure.number is not None and not math.isfinite(file.failure.number):
        yield f"{_WHERE}.failure.number: must be finite"
    if not file.failure.kinds:
        yield f"{_WHERE}.failure.kinds: nothing would count as a failure"


def _conditions(
    file: _File, axes: Mapping[str, Mapping[str, Value]], folder: Path, problems: list[str]
) -> list[Condition]:
    if file.vary == "all":
        chosen = named_axes.combinations(axes, file.include, file.exclude, _WHERE, problems)
    else:
        # The first value of each axis, and that with one axis changed.
        base = {axis: next(iter(values)) for axis, values in axes.items()}
        every = [base, *({**base, axis: name} for axis, values in axes.items() for name in list(values)[1:])]
        chosen = [each for each in every if not any(named_axes.fits(row, each) for row in file.exclude)]
        chosen += [dict(row) for row in file.include if row not in chosen]
    return [_condition(file, axes, choices, folder) for choices in chosen]


def _condition(
    file: _File, axes: Mapping[str, Mapping[str, Value]], choices: Mapping[str, str], folder: Path
) -> Condition:
    values = {axis: axes[axis][name] for axis, name in choices.items()}
    words = {axis: value.words for axis, value in values.items()}
    environment = dict(file.environment)
    for value in values.values():
        environment |= value.environment
    directories = [value.directory for value in values.values() if value.directory is not None]
    envs = [value.env for value in values.values() if value.env is not None]
    env = envs[-1] if envs else file.env
    function = None
    if file.function is not None:
        path, _, name = file.function.rpartition(":")
        arguments = {axis: each for axis, each in words.items() if each}
        function = Function(file=str(folder / path), name=name, arguments=arguments)
    return Condition(
        choices=dict(choices),
        command=named_axes.filled(file.command, words) if file.command is not None else (),
        function=function,
        directory=str(folder / file.directory / (directories[-1] if directories else ".")),
        environment=environment,
        unset=(*file.unset, *(name for value in values.values() for name in value.unset)),
        install=(*file.install, *(each for value in values.values() for each in value.install)),
        env=str(folder / env) if env else None,
        start=next((value.start for value in values.values() if value.start), None),
        on=next((str(fleet.from_gpu(value.on).capability) for value in values.values() if value.on), None),
    )
