"""What made a build stop, in the build system's own words: they weigh as much as the compiler call that failed.

A log ends in a chain: what happened, then everybody above who says that something below failed. What began the last
chain is looked for, and not those who pass it on.
"""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel_core.support.wording import uncoloured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST = 40  # lines
_WIDEST = 2000  # letters of a line
_TELLING = 12  # letters of an error that are not met by chance
_BEFORE = 8  # lines that a recipe may have printed before make says that it failed


class Ending(Struct, frozen=True, kw_only=True):
    """`what`: in a line. `lines`: all of it. `of_call`: it says that some command failed.

    `decides`: it was a build system that refused to go on, whatever failed before.
    """

    what: str
    lines: tuple[str, ...]
    of_call: bool
    decides: bool

    def outweighs(self, output: str) -> bool:
        """Whether a call that failed and printed this was only a trial, or something that the build went on after."""
        return self.decides and not self._quotes(output)

    def _quotes(self, output: str) -> bool:
        """Whether it repeats an error that a call printed: then that call is what it speaks of."""
        text = " ".join(self.lines)
        errors = (line.strip() for line in output.splitlines() if "error" in line.lower() or "fatal" in line.lower())
        return any(len(error) > _TELLING and error in text for error in errors)


class _Kind(Struct, frozen=True, kw_only=True):
    """`begins`: the line that says it. `ends`: the first below that is no longer part of it; None: it is one line."""

    begins: re.Pattern[str]
    ends: re.Pattern[str] | None = None
    before: int = 0
    of_call: bool = False
    decides: bool = False


_NEXT = r"-- |\*\*\*|g?make\b|ninja\b|Traceback|CMake |\[|\$ |running |ERROR|error"
# CMake, Meson, autoconf; ninja, make, cargo, MSBuild, setuptools.
_KINDS = (
    _Kind(decides=True, begins=re.compile(r"CMake Error\b"), ends=re.compile(_NEXT)),
    _Kind(decides=True, begins=re.compile(r"(?:\S*meson(?:\.build|_options\.txt|\.options)\S*: )ERROR: ")),
    _Kind(decides=True, begins=re.compile(r"configure(?:\.\w+)?: error: ")),
    _Kind(begins=re.compile(r"FAILED: "), ends=re.compile(r"ninja: |\[\d+/\d+\]|FAILED: "), of_call=True),
    _Kind(decides=True, begins=re.compile(r"ninja: error: ")),
    _Kind(
        begins=re.compile(r"(?:\S+/)?g?make(?:\[\d+\])?: \*\*\* (?!.*Waiting)"),
        before=_BEFORE,
        of_call=True,
    ),
    _Kind(
        begins=re.compile(
            r"error(?:\[E\d+\]:|: (?:failed to run custom build command|could not compile|linking with))"
        ),
        ends=re.compile(r"warning: build failed|note: run with"),
        of_call=True,
    ),
    _Kind(begins=re.compile(r".{1,300}: (?:fatal )?error [A-Z]{1,4}\d{3,5}: "), of_call=True),
    _Kind(begins=re.compile(r"error: command '.*' (?:failed|terminated)"), of_call=True),
)
_OTHERS = (
    _Kind(begins=re.compile(r"error(?: in \S+ setup command)?: ")),
    _Kind(begins=re.compile(r"(?!Backend)[A-Za-z_][\w.]*(?:Error|Exception|Exit): ")),
    _Kind(begins=re.compile(r"(?:ERROR|Error|FATAL)(?::| -) ?")),
)
# Those who say that something below them failed: of builds and their frontends.
_PASSED_ON = re.compile(
    r"(?:subprocess\.)?CalledProcessError|(?:ERROR|error): (?:Backend|Failed building|subprocess-exited|Could not build"
    r"|metadata-generation|legacy-install|process didn't|build failed)|SystemExit: \d|KeyboardInterrupt"
)
# A build that goes on after an error did not end because of it.
_GOES_ON = re.compile(
    r"\s*(?:\[\s*\d+(?:/\d+|%)\]|-- (?!Configuring incomplete)|(?:running|copying|creating|building|adding|writing) \S"
    r"|Building |Installing |Collecting )"
)


def ending_of(log: str) -> Ending | None:
    """What made it stop; None where nobody says it."""
    lines = [line.rstrip()[:_WIDEST] for line in uncoloured(log).splitlines()]
    found: tuple[int, _Kind] | None = None
    went_on = False
    for index, line in enumerate(lines):
        bare = line.lstrip(" │|")
        known = next((each for each in _KINDS if each.begins.match(bare)), None)
        kind = known or next((each for each in _OTHERS if each.begins.match(bare)), None)
        if kind is None or _PASSED_ON.match(bare):
            went_on = went_on or bool(_GOES_ON.match(line))
        elif found is None or went_on or (known and found[1] in _OTHERS):
            found, went_on = (index, kind), False
    return _ending(lines, *found) if found else None


def _ending(lines: Sequence[str], index: int, kind: _Kind) -> Ending:
    message = [lines[index], *_continued(lines[index + 1 : index + _MOST], kind)]
    while not message[-1].strip():
        message.pop()
    before = lines[max(0, index - kind.before) : index]
    return Ending(what=_in_a_line(message), lines=(*before, *message), of_call=kind.of_call, decides=kind.decides)


def _continued(lines: Sequence[str], kind: _Kind) -> Iterator[str]:
    ends = kind.ends
    if ends is not None:
        yield from takewhile(lambda line: not ends.match(line), lines)


def _in_a_line(message: Sequence[str]) -> str:
    """`CMake Error at x (message):` and the first paragraph of what it says."""
    first, *rest = (line.strip() for line in message)
    if not first.endswith(":"):
        return first
    text = takewhile(bool, dropwhile(lambda line: not line, rest))
    return " ".join((first, *text))
