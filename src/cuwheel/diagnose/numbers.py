"""CUDA's errors by number, in the words of many programs: written once, in `errors.toml`, for all causes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct

from cuwheel import decode

TABLE = Path(__file__).with_name("errors.toml")


class Sayings(Struct, frozen=True, kw_only=True):
    """errors.toml."""

    said: tuple[str, ...]


@cache
def texts(errors: tuple[int, ...]) -> tuple[str, ...]:
    """Patterns that hold one of these numbers."""
    if not errors:
        return ()
    choice = f"<{'|'.join(map(str, errors))}>"
    return tuple(each.replace("{error}", choice) for each in decode.own_table(TABLE, Sayings).said)
