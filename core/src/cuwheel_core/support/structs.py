"""Values as JSON and back: what msgspec has to be told of ours.

A text that knows its parts (`Arch`, `Capability`) is written as the text it is, and read by its own `restored`.

Any thread may decode. msgspec describes a struct when it is first decoded, and keeps the description with the class
*before* its fields are filled in (`StructInfo_Convert`): a second thread that comes meanwhile decodes with fields that
are still null, and the process ends by SIGSEGV. So every type is described here, under a lock, before it is used.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import msgspec

from cuwheel_core.errors import CuwheelError

_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_DESCRIBING = threading.Lock()  # one for all types: those inside a type are described with it


def decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - any annotation
    """The decoder of a type, which any thread may use; it raises msgspec.DecodeError."""
    found = _DECODERS.get(type_)
    if found is None:
        with _DESCRIBING:
            found = _DECODERS.setdefault(type_, msgspec.json.Decoder(type_, dec_hook=from_json))
    return found


def to_json(value: object) -> object:
    """For `enc_hook`."""
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise NotImplementedError


def from_json(type_: Any, data: object) -> Any:  # noqa: ANN401 - a type with `restored`
    """For `dec_hook`."""
    if isinstance(data, type_):
        return data
    if type_ is Path and isinstance(data, str):
        return Path(data)
    if not (isinstance(data, str) and issubclass(type_, str)):
        raise TypeError(f"Expected `str`, got `{type(data).__name__}`")
    try:
        return _restored(type_, data)
    except CuwheelError as error:
        raise ValueError(error.message) from None


@functools.lru_cache(1 << 10)  # a table has few of them, each many times
def _restored(type_: Any, text: str) -> Any:  # noqa: ANN401
    return type_.restored(text)


def described(type_: type) -> dict[str, Any]:
    """For `schema_hook`."""
    if issubclass(type_, str):
        return {"type": "string"}
    raise NotImplementedError
