"""Values as JSON and back, the only place that calls msgspec for it.

A text that knows its parts (`Arch`, `Capability`) is written as the text it is, and read by its own `restored`.

Any thread may decode. msgspec describes a struct when it is first decoded, and keeps the description with the class
*before* its fields are filled in (`StructInfo_Convert`): a second thread that comes meanwhile decodes with fields that
are still null, and the process ends by SIGSEGV. So every type is described here, under a lock, before it is used.
"""

from __future__ import annotations

import contextlib
import itertools
import types
import typing
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import msgspec

from cuwheel.errors import MOST_SOUGHT, ConfigurationError, NewerSchemaError
from cuwheel.support import log
from cuwheel_core.errors import FactsError, MalformedError, UnreadableError
from cuwheel_core.support import bounded, opening, wording
from cuwheel_core.support.structs import decoder, described, from_json, to_json

T = TypeVar("T")


def encode(value: object, *, order: Literal["deterministic"] | None = None) -> bytes:
    return msgspec.json.encode(value, enc_hook=to_json, order=order)


def encode_lines(values: Iterable[object]) -> bytes:
    """A line for each: no value has a line break of its own, since JSON escapes those in texts."""
    return _LINES.encode_lines(values)


def encode_any(value: object, *, order: Literal["deterministic"] | None = None) -> bytes:
    """Also where it has bytes that were no text, in a name or an argument: those are replaced."""
    try:
        return encode(value, order=order)
    except UnicodeEncodeError:
        return encode(_replaced(builtins(value)), order=order)


def _replaced(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, (list, tuple)) else value


def indented(value: object, indent: int = 1, *, order: Literal["deterministic"] | None = None) -> bytes:
    """For files that people open: it ends with a line break. Bytes that were no text are replaced."""
    return msgspec.json.format(encode_any(value, order=order), indent=indent) + b"\n"


def builtins(value: object) -> Any:  # noqa: ANN401 - any JSON
    return msgspec.to_builtins(value, enc_hook=to_json)


@overload
def decode(data: bytes | str) -> Any: ...  # noqa: ANN401 - whatever it holds
@overload
def decode(data: bytes | str, type_: type[T]) -> T: ...
def decode(data: bytes | str, type_: Any = Any) -> Any:
    """JSON that somebody wrote. Whatever is wrong with it is a msgspec.DecodeError."""
    try:
        _refuse_long_numbers(data)
        return decoder(type_).decode(data)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeError as error:  # not of msgspec's own class
        raise msgspec.DecodeError(f"it is not UTF-8: {error}") from None


# A whole number of JSON or TOML may have any length, and one of more than 64 bits is no size, count or time: to
# divide it, or to hand it to the system, is an OverflowError far from here.
_LONG = b":" + b"0" * bounded.MOST_DIGITS
_SHAPES = bytes.maketrans(b"0123456789 \t\r\n[,-", b"0" * 10 + b":" * 7)  # what may stand before a number is a colon
_WHOLE = 1 << 64  # file systems number files so


def _refuse_long_numbers(data: bytes | str) -> None:
    """Raises DecodeError. A text may look as if it had such a number: only then all of it is read for that."""
    if isinstance(data, msgspec.Raw):  # a part of what was decoded before
        return
    raw = data.encode() if isinstance(data, str) else bytes(data)
    if _LONG in raw.translate(_SHAPES):
        import json  # noqa: PLC0415 - 7 ms, and next to no document needs it

        with contextlib.suppress(json.JSONDecodeError):  # what else is wrong with it is told by the decoder
            json.loads(raw, parse_int=lambda digits: _checked_whole(bounded.digits(digits.lstrip("-"))))


def _checked_whole(number: int) -> int:
    if not -_WHOLE <= number < _WHOLE:
        raise msgspec.DecodeError("it has a number that is too large")
    return number


class _Named(msgspec.Struct):
    schema: str = ""


def parse(data: bytes | str, type_: type[T], name: str | Path, what: str, *, schema: str = "", hint: str = "") -> T:
    """JSON that should be `what`; `name`: of the file. What it is not is an error for whoever has this file.

    `schema`: the latest that is known.
    """
    try:
        if schema:
            _refuse_newer(decode(data, _Named).schema, schema, name)
        return decode(data, type_)
    except msgspec.DecodeError as error:
        raise MalformedError(name, f"is not {what}: {error}", hint) from error


def understood(data: bytes | str, type_: type[T]) -> T | None:
    """Decodes the data; None where it is something else."""
    try:
        return decode(data, type_)
    except msgspec.DecodeError as error:
        log.debug("not used: %s", error)
        return None


def noted(path: Path, type_: type[T]) -> T | None:
    """What cuwheel wrote for itself; None where it is not there, was cut short, or is another version's."""
    try:
        return understood(path.read_bytes(), type_)
    except OSError:
        return None


def convert(data: object, type_: type[T]) -> T:
    """Raises msgspec.ValidationError."""
    decoder(type_)
    return msgspec.convert(data, type_, dec_hook=from_json)


def pack(value: object) -> bytes:
    """For what cuwheel alone reads again, and where bytes are to stay bytes."""
    return msgspec.msgpack.encode(value, enc_hook=to_json)


def unpack(data: bytes, type_: type[T]) -> T:
    """Raises msgspec.DecodeError."""
    decoder(type_)
    return msgspec.msgpack.decode(data, type=type_, dec_hook=from_json)


def schema(type_: type) -> dict[str, Any]:
    return msgspec.json.schema(type_, schema_hook=described)


_LINES = msgspec.json.Encoder(enc_hook=to_json)


# Plain data (TOML, JSON) into frozen values, naming every problem and not only the first.

_MOST_PARTS = 64
_MOST_BYTES = 8 << 20


def convert_or_list_problems(data: object, type_: type[T], where: str, problems: list[str]) -> T | None:
    """`data` as a `type_`, or None with every problem appended to `problems`, each starting with `where`.

    Naming one takes time, for names that are alike: of a file that has them by the thousand, the first are enough.
    """
    sought = max(MOST_SOUGHT - len(problems), 0)
    found = list(itertools.islice(_problems_of_value(data, type_, where), sought))
    if found or not sought:
        problems.extend(found)
        return None
    return convert(data, type_)


def refuse_newer(data: object, known: str, name: str | Path) -> None:
    """Before its fields are read: of a newer schema one can say nothing but that it is newer."""
    _refuse_newer(str(data.get("schema", "")) if isinstance(data, dict) else "", known, name)


def _refuse_newer(schema: str, known: str, name: str | Path) -> None:
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
    return found == name and (bounded.whole(version) or 0) > bounded.digits(latest)


def parse_toml(data: bytes) -> dict[str, Any]:
    """A TOML file that somebody wrote. Keys of thousands of parts take Python's parser gigabytes: refused before."""
    for number, line in enumerate(data.splitlines(), 1):
        # What may be keys: a table's name, and all that stands before an equals sign.
        if line.count(b".") > _MOST_PARTS and any(
            each.rpartition(b"{")[2].rpartition(b",")[2].count(b".") > _MOST_PARTS
            for each in ([line] if line.lstrip().startswith(b"[") else line.split(b"=")[:-1])
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
    waiting: list[Any] = [found]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int):
            _checked_whole(value)
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """OSError where it cannot be read, DecodeError where it is not TOML, or too large to be what somebody wrote."""
    with opening.open_plain(path) as file:
        data = opening.read_up_to(file, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise msgspec.DecodeError(f"it is too large: it has more than {_MOST_BYTES:,} bytes")
    try:
        return parse_toml(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from None


def read_configuration(path: Path, hint: str = "") -> dict[str, Any]:
    """A TOML file that a person wrote for cuwheel; what is wrong with it is an error for that person."""
    try:
        return read_toml(path)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=hint) from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(path, [f"it is not valid TOML: {error}"], hint) from error


def own_table(path: Path, type_: type[T]) -> T:
    """A TOML file that comes with cuwheel: the tests have checked it, and it is not checked again at every start.

    tomli is the standard library's parser, compiled: it takes a third of the time.
    """
    import tomli  # noqa: PLC0415 - who reads no table needs none

    try:
        return convert(tomli.loads(path.read_text(encoding="utf-8")), type_)
    except (OSError, ValueError) as error:  # of tomli, of msgspec and of the decoding: all are ValueErrors
        raise FactsError([f"{path.name}: {error}"]) from error


def _problems_of_value(data: object, type_: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - any annotation
    type_ = _without_none(type_) if data is not None else type_
    if is_value(type_) and isinstance(data, dict):
        yield from _table_problems(data, type_, where)
        return
    if typing.get_origin(type_) is tuple and isinstance(data, list) and Ellipsis in typing.get_args(type_):
        for index, item in enumerate(data):
            yield from _problems_of_value(item, typing.get_args(type_)[0], f"{where}[{index}]")
        return
    if typing.get_origin(type_) is dict and isinstance(data, dict):
        for key, item in data.items():
            yield from _problems_of_value(item, typing.get_args(type_)[1], f"{where}.{key}")
        return
    if typing.get_origin(type_) is typing.Literal and data not in typing.get_args(type_):
        yield f"{where}: {data!r} is not one of {', '.join(map(str, typing.get_args(type_)))}"
        return
    try:
        convert(data, type_)
    except msgspec.ValidationError as error:
        yield f"{where}: {_uncapitalised(str(error))}"


def _table_problems(data: dict[Any, Any], type_: Any, where: str) -> Iterator[str]:  # noqa: ANN401
    hints, required = _shape(type_)
    for key in sorted(data.keys() - hints.keys(), key=str):
        near = wording.similar_names(str(key), hints, 1)
        meant = f"; did you mean '{near[0]}'?" if near else ""
        yield f"{where}: unknown key '{key}'{meant}"
    for name, hint in hints.items():
        if name in data:
            yield from _problems_of_value(data[name], hint, f"{where}.{name}" if where else name)
        elif name in required:
            yield f"{where}: '{name}' is missing"


def is_value(type_: Any) -> bool:  # noqa: ANN401
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


@cache
def _shape(type_: Any) -> tuple[dict[str, Any], frozenset[str]]:  # noqa: ANN401
    """The fields of a value as files have them, with their annotations, and which of them must be there: a file has
    thousands of rows of a few kinds.
    """
    fields = msgspec.structs.fields(type_)
    required = frozenset(each.encode_name for each in fields if each.required)
    return {each.encode_name: each.type for each in fields}, required


def _without_none(type_: Any) -> Any:  # noqa: ANN401
    """`X | None` as `X`, so that problems inside X are found one by one."""
    if typing.get_origin(type_) not in (types.UnionType, typing.Union):
        return type_
    rest = [arg for arg in typing.get_args(type_) if arg is not type(None)]
    return rest[0] if len(rest) == 1 else type_


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]
