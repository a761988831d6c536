"""The commands that a log shows: what was tried, for the investigation's report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.diagnosis.diagnosis import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.diagnosis.text import Log

_MOST = 12
_LONGEST = 4000  # letters of a call
# A prompt and what follows it; or a line that starts with a program that builds, installs or asks.
_PROMPT = re.compile(
    r"(?:\$|\+|>|PS [^>]{0,120}>|\(\w{1,40}\) [^>$]{0,120}[$>]|[\w.-]{1,40}@[\w.-]{1,60}:[^$#]{0,120}[$#]) ?(\S.{2,})"
)
_PROGRAM = re.compile(
    r"(?:sudo |time |[A-Z_]{2,30}=\S{0,80} ){0,6}"
    r"(?:pip3?|uv|conda|mamba|python3?|cmake|ninja|make|cargo|nvcc|docker|poetry|apt|apt-get|nvidia-smi|auditwheel|twine)"
    r" [\w./-].{1,}"
)

_START = re.compile(r" ?(?:[$+>(]|PS |[A-Z_]{2,30}=|[\w.-]{1,40}@|[acdmnpstu][\w-]{1,11} )")  # most lines are none


# A compiler's call, as build systems show it.
_CALL = re.compile(
    r"(?:\[\d+/\d+\] |\+ |\$ )?(?:[\w./\\:+-]{0,200}[/\\])?"
    r"(?:nvcc|(?:x86_64-linux-gnu-)?(?:gcc|g\+\+)|cc|c\+\+|clang|clang\+\+|cl|ld|ptxas|nvlink)(?:-\d+)?(?:\.exe)?"
    r" [-@\w/\"'].{3,}",
    re.IGNORECASE,
)
_FAR = 200  # lines between a call and what it printed


def failing(log: Log, line: int) -> Evidence | None:
    """The compiler call that was shown last before a line."""
    near = (index for index in range(len(log.numbers)) if line - _FAR <= log.numbers[index] <= line)
    found = [index for index in near if _CALL.fullmatch(log.lines[index].strip())]
    last = max(found, key=lambda index: log.numbers[index], default=None)
    return None if last is None else Evidence(line=log.numbers[last], text=log.lines[last].strip()[:_LONGEST])


def commands(log: Log) -> tuple[Evidence, ...]:
    """The first of them, each once."""
    found: dict[str, Evidence] = {}
    for number, line in _candidates(log):
        found.setdefault(line, Evidence(line=number, text=line))
        if len(found) == _MOST:
            break
    return tuple(found.values())


def _candidates(log: Log) -> Iterator[tuple[int, str]]:
    for index, number in enumerate(log.numbers):
        if not _START.match(log.lines[index]):
            continue
        text = log.shown(index)
        match = _PROMPT.fullmatch(text)
        command = match[1] if match else text
        if _PROGRAM.fullmatch(command) and not command.endswith(("...", "…")):
            yield number, command
