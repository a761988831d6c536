"""A matrix of commands, from a file that a person wrote: every combination of its axes, less what is excluded."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from cuwheel import decode
from cuwheel.errors import ConfigurationError, UnreadableError
from cuwheel.units import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_CONFIGURATIONS = 1000
_PLACE = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"\w[\w.+-]*")
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
    try:
        data = decode.toml_file(path)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=_HINT) from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(path, [f"it is not valid TOML: {error}"], _HINT) from error
    problems: list[str] = []
    file = decode.convert(data, _File, "matrix", problems)
    if file is None:
        raise ConfigurationError(path, problems, _HINT)
    axes = dict(_axes(file.axes, problems))
    problems += _problems(file, axes, path.parent)
    if problems:
        raise ConfigurationError(path, problems, _HINT)
    configurations = tuple(_configurations(file, axes, path.parent, problems))
    if problems or not configurations:
        raise ConfigurationError(path, problems or ["nothing to run: everything is excluded"], _HINT)
    return Plan(
        file=str(path),
        source=(path.parent / file.directory).resolve(),
        clean=tuple(shlex.split(file.clean)) if file.clean else (),
        leave_out=file.leave_out,
        timeout=file.timeout,
        axes=tuple(axes),
        configurations=configurations,
    )


def _axes(data: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, dict[str, Value]]]:
    for axis, values in data.items():
        where = f"matrix.axes.{axis}"
        if not _NAME.fullmatch(axis):
            problems.append(f"{where}: a name may only contain letters, digits and _")
        named = _named(values) if isinstance(values, list) else values
        if not isinstance(named, dict) or not named:
            problems.append(f"{where}: a list of values, or a table of names and values, with at least one")
            continue
        if isinstance(values, list) and len(named) < len(values):
            problems.append(f"{where}: a value appears twice")
        yield axis, dict(_values(axis, named, problems))


def _named(values: list[Any]) -> dict[str, Any]:
    """By themselves; folders by their last part, where that tells them apart."""
    short = [file_name(each.rstrip("/")) if isinstance(each, str) else str(each) for each in values]
    names = short if len(set(short)) == len(short) and "" not in short else map(str, values)
    return dict(zip(names, values, strict=True))


def _values(axis: str, named: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Value]]:
    for name, given in named.items():
        where = f"matrix.axes.{axis}.{name}"
        if isinstance(given, dict):
            value = decode.convert(given, Value, where, problems)
        elif isinstance(given, str):
            value = decode.convert(_short(axis, given), Value, where, problems)
        else:
            problems.append(f"{where}: expected text or a table, got {type(given).__name__}")
            continue
        if value is not None:
            yield name, value


def _short(axis: str, given: str) -> dict[str, str]:
    """Two axes have a meaning of their own; of any other the text stands in the command."""
    return {axis: given} if axis in ("toolkit", "cache") else {"words": given}


def _problems(file: _File, axes: Mapping[str, Mapping[str, Value]], folder: Path) -> Iterator[str]:
    places = set(_PLACE.findall(file.command))
    yield from (f"matrix.command: unknown axis '{name}'" for name in sorted(places - axes.keys()))
    for axis, values in axes.items():
        if axis not in places and any(value.words for value in values.values()):
            yield f"matrix.command: it does not say where the words of '{axis}' go: {{{axis}}}"
    texts = {"command": file.command, "clean": file.clean or ""}
    texts |= {f"axes.{axis}.{name}": value.words for axis, values in axes.items() for name, value in values.items()}
    yield from (f"matrix.{where}: {problem}" for where, text in texts.items() if (problem := _unsplit(text)))
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
    yield from _unknown(file, axes)


def _unsplit(text: str) -> str:
    try:
        shlex.split(text)
    except ValueError as error:
        return str(error).lower()
    return ""


def _unknown(file: _File, axes: Mapping[str, Mapping[str, Value]]) -> Iterator[str]:
    for kind, rows in (("include", file.include), ("exclude", file.exclude)):
        for index, row in enumerate(rows):
            where = f"matrix.{kind}[{index}]"
            if not row:
                yield f"{where}: it names no axis"
            for axis, wanted in row.items():
                names = wanted if isinstance(wanted, list) else [wanted]
                if axis not in axes:
                    yield f"{where}: unknown axis '{axis}'"
                else:
                    unknown = [name for name in names if name not in axes[axis]]
                    yield from (f"{where}: '{axis}' has no value {name!r}" for name in unknown)


def _configurations(
    file: _File, axes: Mapping[str, Mapping[str, Value]], folder: Path, problems: list[str]
) -> Iterator[Configuration]:
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MAX_CONFIGURATIONS:
        problems.append(f"matrix.axes: {count} combinations, but at most {MAX_CONFIGURATIONS} are allowed")
        return
    every = [dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values())]
    chosen = [choices for choices in every if not any(_fits(row, choices) for row in file.exclude)]
    chosen += [dict(row) for row in file.include if row not in chosen]
    for choices in chosen:
        values = {axis: axes[axis][name] for axis, name in choices.items()}
        configuration = _configured(file, values, choices, folder)
        if not configuration.command:
            problems.append(f"matrix.command: it is empty for {configuration.name}")
        yield configuration


def _fits(row: Mapping[str, Any], choices: Mapping[str, str]) -> bool:
    return all(choices.get(axis) in (names if isinstance(names, list) else [names]) for axis, names in row.items())


def _configured(file: _File, values: Mapping[str, Value], choices: Mapping[str, str], folder: Path) -> Configuration:
    text = _PLACE.sub(lambda match: values[match[1]].words if match[1] in values else "", file.command)
    environment = dict(file.environment)
    for value in values.values():
        environment |= value.environment
    directories = [value.directory for value in values.values() if value.directory is not None]
    return Configuration(
        name=", ".join(choices.values()) or "the command",
        choices=dict(choices),
        command=tuple(shlex.split(text)),
        directory=directories[-1] if directories else ".",
        environment=environment,
        unset=tuple(name for value in values.values() for name in value.unset),
        toolkit=next((_toolkit(value.toolkit, folder) for value in values.values() if value.toolkit), None),
        cache=next((value.cache for value in values.values() if value.cache), None),
    )


def _toolkit(wanted: str, folder: Path) -> str:
    """A folder is taken from where the file is; a version is itself."""
    return str((folder / wanted).resolve()) if "/" in wanted or "\\" in wanted else wanted
