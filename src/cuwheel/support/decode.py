"""Plain data (TOML, JSON) into frozen values, naming every problem and not only the first."""

from __future__ import annotations

import itertools
import types
import typing
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cuwheel.errors import MOST_SOUGHT, ConfigurationError, FactsError, NewerSchemaError, UnreadableError
from cuwheel.support import codec, system_calls, typos

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")
_MOST_PARTS = 64
_MOST_BYTES = 8 << 20


def convert(data: object, type_: type[T], where: str, problems: list[str]) -> T | None:
    """`data` as a `type_`, or None with every problem appended to `problems`, each starting with `where`.

    Naming one takes time, for names that are alike: of a file that has them by the thousand, the first are enough.
    """
    sought = max(MOST_SOUGHT - len(problems), 0)
    found = list(itertools.islice(_problems(data, type_, where), sought))
    if found or not sought:
        problems.extend(found)
        return None
    return codec.convert(data, type_)


def refuse_newer(data: object, known: str, name: str | Path) -> None:
    """Before its fields are read: of a newer schema one can say nothing but that it is newer."""
    schema = str(data.get("schema", "")) if isinstance(data, dict) else ""
    if is_newer(schema, known):
        raise NewerSchemaError(name, schema[:100], known)


def checked_table(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """A TOML file that comes with cuwheel, for a check of it; None with a problem where it cannot be read."""
    try:
        found: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        problems.append(f"{path.name}: {error}")
        return None
    return found


def is_newer(schema: str, known: str) -> bool:
    """Whether a file's schema is a later version of the one that is known: `cuwheel.facts/2` of `cuwheel.facts/1`."""
    name, _, latest = known.rpartition("/")
    found, _, version = schema.rpartition("/")
    return found == name and version.isascii() and version.isdigit() and int(version[:9]) > int(latest)


def toml(data: bytes) -> dict[str, Any]:
    """A TOML file that somebody wrote. Keys of thousands of parts take Python's parser gigabytes: refused before."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.count(b".") > _MOST_PARTS and any(
            each.rpartition(b"{")[2].rpartition(b",")[2].count(b".") > _MOST_PARTS for each in _keys(line)
        ):
            raise msgspec.DecodeError(f"line {number}: a key has more than {_MOST_PARTS} parts")
    import tomli  # noqa: PLC0415 - who reads no table needs none

    text = data.decode("utf-8")
    try:
        found = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise msgspec.DecodeError(_uncapitalised(str(error).partition(";")[0])) from None
    return found


def toml_file(path: Path) -> dict[str, Any]:
    """OSError where it cannot be read, DecodeError where it is not TOML, or too large to be what somebody wrote."""
    with system_calls.open_plain(path) as file:
        data = system_calls.read_up_to(file, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise msgspec.DecodeError(f"it is too large: it has more than {_MOST_BYTES:,} bytes")
    try:
        return toml(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None


def configuration(path: Path, hint: str = "") -> dict[str, Any]:
    """A TOML file that a person wrote for cuwheel; what is wrong with it is an error for that person."""
    try:
        return toml_file(path)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=hint) from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(path, [f"it is not valid TOML: {error}"], hint) from error


def _keys(line: bytes) -> list[bytes]:
    """What may be keys: a table's name, and all that stands before an equals sign."""
    return [line] if line.lstrip().startswith(b"[") else line.split(b"=")[:-1]


def own_table(path: Path, type_: type[T]) -> T:
    """A TOML file that comes with cuwheel: the tests have checked it, and it is not checked again at every start.

    tomli is the standard library's parser, compiled: it takes a third of the time.
    """
    import tomli  # noqa: PLC0415 - who reads no table needs none

    try:
        return codec.convert(tomli.loads(path.read_text(encoding="utf-8")), type_)
    except (OSError, ValueError) as error:  # of tomli, of msgspec and of the decoding: all are ValueErrors
        raise FactsError([f"{path.name}: {error}"]) from error


def _problems(data: object, type_: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - any annotation
    type_ = _without_none(type_) if data is not None else type_
    if is_value(type_) and isinstance(data, dict):
        yield from _table_problems(data, type_, where)
        return
    if typing.get_origin(type_) is tuple and isinstance(data, list) and Ellipsis in typing.get_args(type_):
        for index, item in enumerate(data):
            yield from _problems(item, typing.get_args(type_)[0], f"{where}[{index}]")
        return
    if typing.get_origin(type_) is dict and isinstance(data, dict):
        for key, item in data.items():
            yield from _problems(item, typing.get_args(type_)[1], f"{where}.{key}")
        return
    if typing.get_origin(type_) is typing.Literal and data not in typing.get_args(type_):
        yield f"{where}: {data!r} is not one of {', '.join(map(str, typing.get_args(type_)))}"
        return
    try:
        codec.convert(data, type_)
    except msgspec.ValidationError as error:
        yield f"{where}: {_uncapitalised(str(error))}"


def _table_problems(data: dict[Any, Any], type_: Any, where: str) -> Iterator[str]:  # noqa: ANN401
    hints, required = _shape(type_)
    for key in sorted(data.keys() - hints.keys(), key=str):
        near = typos.alike(str(key), hints, 1)
        meant = f"; did you mean '{near[0]}'?" if near else ""
        yield f"{where}: unknown key '{key}'{meant}"
    for name, hint in hints.items():
        if name in data:
            yield from _problems(data[name], hint, f"{where}.{name}" if where else name)
        elif name in required:
            yield f"{where}: '{name}' is missing"


def is_value(type_: Any) -> bool:  # noqa: ANN401
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


@cache
def _shape(type_: Any) -> tuple[dict[str, Any], frozenset[str]]:  # noqa: ANN401
    """The fields of a value with their annotations, and which of them must be there: a file has
    thousands of rows of a few kinds.
    """
    fields = msgspec.structs.fields(type_)
    return {each.name: each.type for each in fields}, frozenset(each.name for each in fields if each.required)


def _without_none(type_: Any) -> Any:  # noqa: ANN401
    """`X | None` as `X`, so that problems inside X are found one by one."""
    if typing.get_origin(type_) not in (types.UnionType, typing.Union):
        return type_
    rest = [arg for arg in typing.get_args(type_) if arg is not type(None)]
    return rest[0] if len(rest) == 1 else type_


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]
