"""CUDA's errors."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class ErrorRow(Struct, frozen=True, kw_only=True):
    """`late`: the cause is a kernel that was launched before the call that reports it."""

    code: int
    name: str
    meaning: str
    source: tuple[str, ...]
    late: bool = False
    measured: bool = False


class Errors(Struct, frozen=True, kw_only=True):
    """errors.toml."""

    sources: dict[str, Source]
    error: tuple[ErrorRow, ...]
