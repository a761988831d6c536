"""Values as JSON and back, the only place that calls msgspec for it.

A text that knows its parts (`Arch`, `Capability`) is written as the text it is, and read by its own `restored`.

Any thread may decode. msgspec describes a struct when it is first decoded, and keeps the description with the class
*before* its fields are filled in (`StructInfo_Convert`): a second thread that comes meanwhile decodes with fields that
are still null, and the process ends by SIGSEGV. So every type is described here, under a lock, before it is used.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from cuwheel.errors import CuwheelError

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def encode(value: object, *, order: Literal["deterministic"] | None = None) -> bytes:
    return msgspec.json.encode(value, enc_hook=_written, order=order)


def encode_lines(values: Iterable[object]) -> bytes:
    """A line for each: no value has a line break of its own, since JSON escapes those in texts."""
    return _LINES.encode_lines(values)


def encode_any(value: object) -> bytes:
    """Also where it has bytes that were no text, in a name or an argument: those are replaced."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_replaced(builtins(value)))


def _replaced(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return value.encode(errors="surrogateescape").decode(errors="replace")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, (list, tuple)) else value


def indented(value: object, indent: int = 1, *, order: Literal["deterministic"] | None = None) -> bytes:
    """For files that people open: it ends with a line break. Bytes that were no text are replaced."""
    try:
        data = encode(value, order=order)
    except UnicodeEncodeError:
        data = encode(_replaced(builtins(value)), order=order)
    return msgspec.json.format(data, indent=indent) + b"\n"


def builtins(value: object) -> Any:  # noqa: ANN401 - any JSON
    return msgspec.to_builtins(value, enc_hook=_written)


@overload
def decode(data: bytes | str) -> Any: ...  # noqa: ANN401 - whatever it holds
@overload
def decode(data: bytes | str, type_: type[T]) -> T: ...
def decode(data: bytes | str, type_: Any = Any) -> Any:
    """JSON that somebody wrote. Whatever is wrong with it is a msgspec.DecodeError."""
    try:
        return _decoder(type_).decode(data)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeError as error:  # not of msgspec's own class
        raise msgspec.DecodeError(f"it is not UTF-8: {error}") from None


def convert(data: object, type_: type[T]) -> T:
    """Raises msgspec.ValidationError."""
    _decoder(type_)
    return msgspec.convert(data, type_, dec_hook=_read)


def pack(value: object) -> bytes:
    """For what cuwheel alone reads again, and where bytes are to stay bytes."""
    return msgspec.msgpack.encode(value, enc_hook=_written)


def unpack(data: bytes, type_: type[T]) -> T:
    """Raises msgspec.DecodeError."""
    _decoder(type_)
    return msgspec.msgpack.decode(data, type=type_, dec_hook=_read)


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_DESCRIBING = threading.Lock()  # one for all types: those inside a type are described with it


def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - any annotation
    found = _DECODERS.get(type_)
    if found is None:
        with _DESCRIBING:
            found = _DECODERS.setdefault(type_, msgspec.json.Decoder(type_, dec_hook=_read))
    return found


def schema(type_: type) -> dict[str, Any]:
    return msgspec.json.schema(type_, schema_hook=_described)


def _written(value: object) -> object:
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise NotImplementedError


_LINES = msgspec.json.Encoder(enc_hook=_written)


def _read(type_: Any, data: object) -> Any:  # noqa: ANN401 - a type with `restored`
    if isinstance(data, type_):
        return data
    if type_ is Path and isinstance(data, str):
        return Path(data)
    if not (isinstance(data, str) and issubclass(type_, str)):
        raise TypeError(f"Expected `str`, got `{type(data).__name__}`")
    try:
        return type_.restored(data)
    except CuwheelError as error:
        raise ValueError(error.message) from None


def _described(type_: type) -> dict[str, Any]:
    if issubclass(type_, str):
        return {"type": "string"}
    raise NotImplementedError
