"""Progress on a terminal, for work that takes longer than a person likes to wait in silence."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from cuwheel.cli import streams
from cuwheel.support import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.support.log import Progress

_PATIENCE_S = 0.5
_LINE_S = 60.0  # between lines in a log: enough to see that it lives, too few to bury the rest
_REFRESH_S = 0.1
_WIDTH = 24


class _Bar:
    """Drawn by hand on one line of stderr: importing a terminal library costs more than most work does."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total, self._done = label, total, 0
        self._now = ""
        self._next = time.monotonic() + _PATIENCE_S
        self.shown = False

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        self._draw()

    def show(self, text: str) -> None:
        self._now = text
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _REFRESH_S
        self.shown = True
        sys.stderr.write(f"\r\x1b[K{self._line()[: streams.terminal_width() - 1]}")
        sys.stderr.flush()

    def _line(self) -> str:
        return wording.printable_line(" ".join(filter(None, (self._label, self._figure(), self._now))))

    def _figure(self) -> str:
        if not self._total:
            return f"{self._done:,}" if self._done else ""
        share = min(self._done / self._total, 1.0)
        filled = round(share * _WIDTH)
        return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"


class _Lines(_Bar):
    """For logs, such as a CI's: the same in a line of its own, once a minute."""

    def __init__(self, label: str, total: int | None) -> None:
        super().__init__(label, total)
        self._next = time.monotonic() + _LINE_S

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LINE_S
        sys.stderr.write(self._line() + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def in_lines(label: str, total: int | None) -> Iterator[Progress]:
    yield _Lines(label, total)


@contextlib.contextmanager
def on_terminal(label: str, total: int | None) -> Iterator[Progress]:
    bar = _Bar(label, total)
    try:
        yield bar
    finally:
        if bar.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
