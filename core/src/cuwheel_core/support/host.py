"""What a program that uses the core may give it; it knows nothing of that program by itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any


class LimitWarning(UserWarning):
    """A limit on what is read was met where nobody collected it as a finding."""


def _warn(message: str) -> None:
    warnings.warn(message, LimitWarning, stacklevel=4)


on_limit: Callable[[str], None] = _warn
# Rows beside those of `libraries.toml`: of CUDA libraries that are newer than it.
more_cuda_libraries: Callable[[], Sequence[Any]] = tuple
