"""Messages and progress for listeners. As a library cuwheel is silent; the command line listens.

Python's logging hears everything too, if the program has imported it. It is not imported here: most
commands have nothing to say, and it takes a tenth of their time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cuwheel_core.support import printable

if TYPE_CHECKING:
    ProgressListener: TypeAlias = Callable[[str, "int | None"], contextlib.AbstractContextManager["Progress"]]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}  # logging's own numbers
_threshold: int | None = None
_on_message: Callable[[str, str], None] | None = None


def debug(message: str, *values: object) -> None:
    _write("debug", message, values)


def info(message: str, *values: object) -> None:
    _write("info", message, values)


def warning(message: str, *values: object) -> None:
    _write("warning", message, values)


class _Shown:
    """Any other value, made printable: paths and errors contain text from strangers too."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable.line(str(self._value))

    def __repr__(self) -> str:
        return printable.line(repr(self._value))

    def __int__(self) -> int:
        return int(self._value)  # type: ignore[call-overload, no-any-return]

    def __float__(self) -> float:
        return float(self._value)  # type: ignore[arg-type]


def _write(level: str, message: str, values: tuple[object, ...]) -> None:
    number = _LEVELS[level]
    if _threshold is not None:
        if number >= _threshold:
            from cuwheel.support import masking  # noqa: PLC0415 - its patterns take 5 ms, and most commands say nothing

            safe = tuple(printable.line(each) if isinstance(each, str) else _Shown(each) for each in values)
            text = masking.known(message % safe if safe else message, os.environ)
            text = printable.message(text)
            if _on_message:
                _on_message(level, text)
            else:
                sys.stderr.write(printable.output(text) + "\n")
    elif logging := sys.modules.get("logging"):
        logging.getLogger("cuwheel").log(number, message, *values)


class Progress(Protocol):
    """One piece of long work. `total` is in the unit of `advance`; None where it is not known."""

    def advance(self, amount: int = 1) -> None: ...

    def show(self, text: str) -> None:
        """What is being done now, in a few words; replaces what was shown before."""


class _Silent:
    def advance(self, amount: int = 1) -> None:
        pass

    def show(self, text: str) -> None:
        pass


@contextlib.contextmanager
def _no_progress(_label: str, _total: int | None) -> Iterator[Progress]:
    yield _Silent()


_listener: ProgressListener = _no_progress


def progress(label: str, total: int | None = None) -> contextlib.AbstractContextManager[Progress]:
    return _listener(label, total)


def listen(
    *,
    level: str,
    on_progress: ProgressListener | None = None,
    on_message: Callable[[str, str], None] | None = None,
) -> None:
    """Send progress to `on_progress`, messages of `level` and above to `on_message` (without one, to stderr)."""
    global _listener, _on_message, _threshold  # noqa: PLW0603 - one process, one listener
    _threshold, _on_message = _LEVELS[level], on_message
    _listener = on_progress or _no_progress
