"""Errors of the system, told with what became of the files."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from cuwheel.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def errors_of(place: Path, hint: str) -> Iterator[None]:
    """`place`: what was being written, where the system does not say. `hint`: what became of it.

    The engine's errors about files pass through here too, and get the same ending.
    """
    try:
        yield
    except UnreadableError as error:
        cause = error.__cause__
        if error.hint or not isinstance(cause, OSError):
            raise
        raise _explained(cause, place, hint) from cause
    except OSError as error:
        raise _explained(error, place, hint) from error


def _explained(error: OSError, place: Path, hint: str) -> UnreadableError:
    if error.errno in _FULL:
        hint = f"make room first; {hint}"
    return UnreadableError.from_os(error, error.filename or place, hint=hint)
