"""CUDA's errors by number: their names, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.rows.cuda_errors import ErrorRow


def find_error(code: int) -> ErrorRow | None:
    return next((row for row in tables().errors.error if row.code == code), None)


def logged_error(line: str) -> ErrorRow | None:
    """The error that a line of the driver's own log tells of."""
    return next((row for row in tables().errors.error if row.log and line.startswith(row.log)), None)
