"""Standard output and error that take any text: no terminal, pipe or locale makes an answer end in a crash."""

from __future__ import annotations

import codecs
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

_HANDLER = "cuwheel-nearest"
_COLUMNS = 80  # where nobody tells
# What stands for a character that the encoding has not; anything else becomes a question mark.
_NEAREST = {
    "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "=", "▍": "=", "▎": "-", "▏": "-", "■": "x", "●": "*",
    "→": "->", "…": "...", "×": "x", "≥": ">=", "≤": "<=", "—": "-", "–": "-", "·": "-", "§": "section ",
    "“": '"', "”": '"', "‘": "'", "’": "'", "\N{REPLACEMENT CHARACTER}": "?",  # noqa: RUF001 - as others write them
}  # fmt: skip


def prepare() -> None:
    """Before anything is printed. Streams that are closed lead nowhere."""
    codecs.register_error(_HANDLER, _nearest)
    sys.stdout = _taking_anything(sys.stdout)
    sys.stderr = _taking_anything(sys.stderr)


def write_utf8(text: str) -> None:
    """To standard output, whatever the terminal's encoding: JSON is UTF-8 by definition."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # a stream that somebody put there
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    buffer.write(text.encode("utf-8", _HANDLER))
    buffer.flush()


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
    """As shutil has it, without shutil: argparse asks for every argument, and importing that takes 4 ms."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns[:9]):
        return int(columns[:9])
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
