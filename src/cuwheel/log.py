"""Messages and progress for whoever listens. As a library cuwheel is silent; the command line listens."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    ProgressListener: TypeAlias = Callable[[str, "int | None"], contextlib.AbstractContextManager["Progress"]]

_logger = logging.getLogger("cuwheel")
_logger.addHandler(logging.NullHandler())

debug = _logger.debug
info = _logger.info
warning = _logger.warning


class Progress(Protocol):
    """One piece of long work. `total` is in the unit of `advance`; None where it is not known."""

    def advance(self, amount: int = 1) -> None: ...


class _Silent:
    def advance(self, amount: int = 1) -> None:
        pass


@contextlib.contextmanager
def _unheard(_label: str, _total: int | None) -> Iterator[Progress]:
    yield _Silent()


_listener: ProgressListener = _unheard


def progress(label: str, total: int | None = None) -> contextlib.AbstractContextManager[Progress]:
    return _listener(label, total)


def listen(*, level: str, on_progress: ProgressListener | None = None) -> None:
    """Send messages of `level` and above to stderr, and progress to `on_progress`."""
    global _listener  # noqa: PLW0603 - one process, one listener
    for handler in list(_logger.handlers):
        _logger.removeHandler(handler)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(level.upper())
    _logger.propagate = False
    _listener = on_progress or _unheard
