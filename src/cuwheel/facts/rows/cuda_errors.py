"""CUDA's errors."""

from __future__ import annotations

from msgspec import Struct

from cuwheel_core.facts.rows.common import Source


class ErrorRow(Struct, frozen=True, kw_only=True):
    """`late`: the cause is a kernel that was launched before the call that reports it.

    `log`: how the driver's own log begins to tell of it, where code that is loaded in private gives it.
    """

    code: int
    name: str
    meaning: str
    source: tuple[str, ...]
    late: bool = False
    log: str = ""
    measured: bool = False


class Errors(Struct, frozen=True, kw_only=True):
    """errors.toml."""

    sources: dict[str, Source]
    error: tuple[ErrorRow, ...]
