"""A matrix of commands, from a file that a person wrote: every combination of its axes, less what is excluded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from cuwheel.errors import ConfigurationError
from cuwheel.support import axes as named_axes
from cuwheel.support import codec, quoting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HINT = "docs/replay.md shows such a file"
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


def load(path: Path) -> Plan:
    """All problems at once."""
    data = codec.read_configuration(path, _HINT)
    problems: list[str] = []
    file = codec.convert_or_list_problems(data, _File, "matrix", problems)
    if file is None:
        raise ConfigurationError(path, problems, _HINT)
    axes = dict(
        named_axes.read(file.axes, "matrix", problems, lambda axis, given, where: _value(axis, given, where, problems))
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


def _value(axis: str, given: Any, where: str, problems: list[str]) -> Value | None:  # noqa: ANN401 - anything
    if isinstance(given, dict):
        return codec.convert_or_list_problems(given, Value, where, problems)
    if isinstance(given, str):
        return codec.convert_or_list_problems(_short(axis, given), Value, where, problems)
    problems.append(f"{where}: expected text or a table, got {type(given).__name__}")
    return None


def _short(axis: str, given: str) -> dict[str, str]:
    """Two axes have a meaning of their own; of any other the text stands in the command."""
    return {axis: given} if axis in ("toolkit", "cache") else {"words": given}


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
        configuration = _configured(file, values, choices, folder)
        if not configuration.command:
            problems.append(f"matrix.command: it is empty for {configuration.name}")
        yield configuration


def _configured(file: _File, values: Mapping[str, Value], choices: Mapping[str, str], folder: Path) -> Configuration:
    command = named_axes.filled(file.command, {axis: value.words for axis, value in values.items()})
    environment = dict(file.environment)
    for value in values.values():
        environment |= value.environment
    directories = [value.directory for value in values.values() if value.directory is not None]
    return Configuration(
        name=", ".join(choices.values()) or "the command",
        choices=dict(choices),
        command=command,
        directory=directories[-1] if directories else ".",
        environment=environment,
        unset=tuple(name for value in values.values() for name in value.unset),
        toolkit=next((_toolkit(value.toolkit, folder) for value in values.values() if value.toolkit), None),
        cache=next((value.cache for value in values.values() if value.cache), None),
    )


def _toolkit(wanted: str, folder: Path) -> str:
    """A folder is taken from where the file is; a version is itself."""
    return str((folder / wanted).resolve()) if "/" in wanted or "\\" in wanted else wanted
