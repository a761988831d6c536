"""Standard output and error that take any text: no terminal, pipe or locale makes an answer end in a crash.

And progress on them, for work that takes longer than a person likes to wait in silence.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

from cuwheel_core.support import bounded, printable, wording

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from cuwheel.support.answer import Answer
    from cuwheel.support.log import Progress

_HANDLER = "cuwheel-nearest"
_COLUMNS = 80  # where nobody tells
_PATIENCE_S = 0.5
_LINE_S = 60.0  # between lines in a log: enough to see that it lives, too few to bury the rest
_REFRESH_S = 0.1
_BAR = 24
_SHORTEST = 16  # of a label that is cut to have its figure beside it
_CLEAR = "\r\x1b[K"
# What stands for a character that the encoding has not; anything else becomes a question mark.
_NEAREST = {
    "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "=", "▍": "=", "▎": "-", "▏": "-", "■": "x", "●": "*",
    "→": "->", "…": "...", "×": "x", "≥": ">=", "≤": "<=", "—": "-", "–": "-", "·": "-", "§": "section ",
    "“": '"', "”": '"', "‘": "'", "’": "'", "\N{REPLACEMENT CHARACTER}": "?",  # noqa: RUF001 - as others write them
}  # fmt: skip


def prepare() -> None:
    """Before anything is printed. Streams that are closed lead nowhere."""
    global _answered  # noqa: PLW0603 - of the process, as the streams are
    _answered = False
    codecs.register_error(_HANDLER, _nearest)
    sys.stdout = _taking_anything(sys.stdout)
    sys.stderr = _taking_anything(sys.stderr)


_answered = False


def write_json(answer: Answer) -> None:
    """Writes one object to standard output, and never a second: not even where the first could not be written whole."""
    global _answered  # noqa: PLW0603 - of the process, as the streams are
    if _answered:
        return
    text = answer.to_json()
    _answered = True
    write_utf8(text)


def write(text: str) -> None:
    """Whole lines, to standard output."""
    sys.stdout.write(printable.output(text))


def say(text: str) -> None:
    """A line or several, each of them printable already, to standard error."""
    sys.stderr.write(printable.output(text) + "\n")


def write_utf8(text: str) -> None:
    """To standard output, whatever the terminal's encoding: JSON is UTF-8 by definition."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # a stream that somebody put there
        sys.stdout.write(printable.output(text))
        return
    sys.stdout.flush()
    buffer.write(text.encode("utf-8", _HANDLER))
    buffer.flush()


def lead_stdout_nowhere() -> None:
    """Nobody reads it any more, and Python must not complain while closing it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _taking_anything(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - until the process ends
    if reconfigure := getattr(stream, "reconfigure", None):
        # Windows takes for a pipe the code page of the last century; what reads one there today reads UTF-8.
        reconfigure(encoding="utf-8" if os.name == "nt" else None, errors=_HANDLER)
    return stream


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_NEAREST.get(each, "?") for each in missing), error.end


def terminal_width() -> int:
    """The terminal's width, by the rules of shutil: argparse asks for every argument, and importing that takes 4 ms."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and bounded.digits(columns):
        return bounded.digits(columns)
    try:
        # Some terminals say 0.
        return (os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else 0) or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def say_on_terminal(label: str, text: str, colour: str = "", commands: Sequence[str] = ()) -> None:
    """Wrapped; what went wrong, or may, has its label in front. Names, addresses and options stay whole.

    Commands have lines of their own, which are never wrapped: they are copied.
    """
    import textwrap

    colour = colour or {"warning": "33"}.get(label, "")
    front = f"{label}: " if colour else ""
    width = max(terminal_width() - 1, 20)
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    if not text and commands:
        lines = [f"{front}{commands[0]}", *(f"  {each}" for each in commands[1:])]
    else:
        lines = [*map(wrapper.fill, f"{front}{text}".splitlines()), *(f"  {each}" for each in commands)]
    text = "\n".join(lines)
    if front and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{colour}m{label}\x1b[0m{text.removeprefix(label)}"
    sys.stderr.write(f"{_CLEAR if _Bar.on_line else ''}{printable.output(text)}\n")
    _Bar.on_line = False


class _Bar:
    """Drawn by hand on one line of stderr: importing a terminal library costs more than most work does."""

    on_line = False  # whether one stands on the last line of the terminal, where a message would go on

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

    def wait(self) -> None:
        """Draws it though nothing was done yet."""
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _REFRESH_S
        self.shown = _Bar.on_line = True
        room = terminal_width() - 1
        sys.stderr.write(f"{_CLEAR}{printable.output(self._line(room)[:room])}")
        sys.stderr.flush()

    def _line(self, room: int = 0) -> str:
        """At most as long as `room`, of which the label gets what the figure leaves, as far as that is of use."""
        figure = self._figure()
        least = room - len(figure) - 1
        label = wording.elided(self._label, least) if figure and least >= _SHORTEST else self._label
        return printable.line(" ".join(filter(None, (label, figure, self._now))))

    def _figure(self) -> str:
        if not self._total:
            return f"{self._done:,}" if self._done else ""
        share = min(self._done / self._total, 1.0)
        filled = round(share * _BAR)
        return f"[{'#' * filled}{'.' * (_BAR - filled)}] {wording.percent(share):>5}"


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
        sys.stderr.write(printable.output(self._line()) + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def in_lines(label: str, total: int | None) -> Iterator[Progress]:
    yield _Lines(label, total)


@contextlib.contextmanager
def on_terminal(label: str, total: int | None) -> Iterator[Progress]:
    bar = _Bar(label, total)
    waiting = _drawn_later(bar) if total is None else None
    try:
        yield bar
    finally:
        if waiting:
            waiting.cancel()
            waiting.join()
        if bar.shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            _Bar.on_line = False


def _drawn_later(bar: _Bar) -> threading.Timer | None:
    """For work that may have no steps to tell, such as a question to a server: its name shows that it goes on."""
    import threading

    timer = threading.Timer(_PATIENCE_S + _REFRESH_S, bar.wait)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # no thread is to be had
        return None
    return timer
