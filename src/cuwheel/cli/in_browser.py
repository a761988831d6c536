"""The command line for a page that runs this package in a browser: words in, JSON out.

The same parser, the same answers and the same documents as in a terminal, drawn as HTML.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.cli import frame
from cuwheel.device_code import target
from cuwheel.errors import EXIT_BUG, EXIT_NO, EXIT_OK
from cuwheel.support import codec
from cuwheel_core.errors import CuwheelError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from cuwheel.support.answer import Answer
    from cuwheel.support.log import ProgressListener

    Show: TypeAlias = Callable[[str, int, int], object]

# What a page can do: nothing is installed, started or written there.
VERBS = ("check", "explain", "inspect", "lookup", "plan")


_OFTEN = 0.1  # seconds between two calls of `show`


class Reply(Struct, frozen=True, kw_only=True):
    """`json`: what `--json` prints. `html`: the document; `details`: the one of `--verbose`, where it says more."""

    status: int
    json: str = ""
    html: str = ""
    details: str = ""
    error: str = ""
    hint: str = ""


def run(commands: Sequence[Sequence[str]], show: Show | None = None) -> str:
    """The JSON of a `Reply` to each. A file that several ask about is read once: in a browser that takes long.

    `show` is called as the work goes on: with what is done, how much of it, of how much.
    """
    with target.remembered_surveys():
        return codec.encode([_reply(words, show) for words in commands]).decode()


def _reply(words: Sequence[str], show: Show | None) -> Reply:
    try:
        from cuwheel.support import log
        from cuwheel.support.answer import to_json

        command, args = frame.understood(words)
        log.listen(level="error", on_progress=_listener(show) if show else None)
        answer = command.run(args)
        html, details = _drawn(answer, verbose=False), _drawn(answer, verbose=True)
        return Reply(
            status=EXIT_OK if answer.succeeded else EXIT_NO,
            json=to_json(answer),
            html=html,
            details=details if details != html else "",
        )
    except CuwheelError as error:
        return Reply(status=error.exit_code, error=error.message, hint=error.hint)
    except OSError as error:
        refused = UnreadableError.from_os(error)
        return Reply(status=refused.exit_code, error=refused.message, hint=refused.hint)
    except MemoryError:
        return Reply(
            status=UnreadableError.exit_code,
            error="the browser has too little memory for this file",
            hint="read it with cuwheel on your machine",
        )
    except Exception as error:  # noqa: BLE001 - the last resort, as in the terminal
        return Reply(status=EXIT_BUG, error=f"this is a bug in cuwheel: {type(error).__name__}: {error}")


def _drawn(answer: Answer, *, verbose: bool) -> str:
    from cuwheel.report import html
    from cuwheel.report.answer import document_of

    return "\n".join(html.blocks(document_of(answer, verbose=verbose)))


class _Work:
    def __init__(self, text: str, total: int | None, show: Show) -> None:
        self._text, self._total, self._show = text, total or 0, show
        self._done, self._shown = 0, 0.0

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        if time.monotonic() - self._shown > _OFTEN:
            self._shown = time.monotonic()
            self._show(self._text, self._done, self._total)

    def show(self, text: str) -> None:
        self._show(text, self._done, self._total)


def _listener(show: Show) -> ProgressListener:
    @contextlib.contextmanager
    def listen(text: str, total: int | None) -> Iterator[_Work]:
        show(text, 0, total or 0)
        yield _Work(text, total, show)

    return listen
