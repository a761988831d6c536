"""Who speaks in a line of a log, and what kind of line it is: a command is no sentence, whatever words it has.

A line is read when something was found in it, and not before: of a megabyte of log that is a few dozen.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.support import codec

TABLE = Path(__file__).with_name("speakers.toml")
Kind: TypeAlias = Literal["command", "diagnostic", "status", "environment", "listing", "chatter"]
_LONGEST = 4000  # letters of a line that tell who speaks

# What stands before a command: a shell's prompt; then a step's number, folders that are entered, variables, caches.
_PROMPT = (
    r"[$+] |PS [^>\n]{0,120}> ?|[\w.-]{1,40}@[\w.-]{1,60}:[^$#\n]{0,120}[$#] ?|[A-Za-z]:\\[^>\n]{0,160}>"
    r"|\([\w.-]{1,40}\) [^$>\n]{0,120}[$>] ?"
)
_BEFORE = (
    rf"{_PROMPT}|\[\s*\d+/\d+\] |#\$ |[%>] |: && |(?:cd|cmd /c) \S{{1,300}} && |[A-Z_]{{2,40}}=\S{{0,300}} "
    r"|(?:running|executing|command|Run Build Command\(s\)) ?: ?\[?|(?:\S{0,200}[/\\])?(?:sudo|time|exec|env|s?ccache) "
)
_COMPILER = (
    r"[\"']?(?:[^\s\"']{0,300}[/\\])?"
    r"(?:nvcc|ptxas|nvlink|cicc|cudafe\+\+|fatbinary|(?:[\w.]{1,40}-){0,4}(?:gcc|g\+\+|clang|clang\+\+)(?:-[\d.]{1,6})?"
    r"|cc|c\+\+|cl|link|lld-link|ld|ld\.\w{2,6}|rustc|hipcc)(?:\.exe)?[\"']?"
)
# Its first word is an option or a file: "gcc versions later than 12 are not supported" is a sentence.
_FIRST_WORD = r"--?[A-Za-z]|@\S|/[A-Za-z?]|[\w./\\:+-]{1,300}\.(?:cu|cpp|cc|c|cxx|o|obj|ptx|cubin|ii|gpu|a)\b"
_CALL = re.compile(rf"\s*(?:{_BEFORE}){{0,8}}{_COMPILER}(?! \S{{1,300}}, line \d)(?= {{1,8}}[\"']?(?:{_FIRST_WORD}))")
# Programs that people type: told from a sentence by the prompt before them.
_TYPED = re.compile(rf"\s*(?:{_PROMPT})(?:{_BEFORE}){{0,8}}[\w./\\-]{{2,200}} \S")
# Within a message: its words in quotes, one after the other, as Rust, Python and MSBuild show them. Who failed is said.
_QUOTED = re.compile(
    r"\"[^\"\n]{1,400}\"(?P<rust> \"-[^\"\n]{1,400}\"(?: \"[^\"\n]{1,400}\")+)"
    r"|\['[^'\n]{1,400}'(?P<python>(?=[^\]\n]{0,4000}, '-)(?:, '[^'\n]{0,400}')+)\]"
    r"|The command \"\"?[^\"\n]{1,300}\"(?P<msbuild>.{1,8000}\")(?= exited with code)"
    r"|\[command: \S{1,300}(?P<own>[^\]\n]{1,4000})\]"
)
_LISTING = re.compile(r"[-dlcbps][rwxsStT-]{9}[.+@]? +\d+ \S+ +\S+ +[\d,]+ ")  # ls -l


class Speaker(Struct, frozen=True, kw_only=True):
    """`begins`: expressions for the beginning of a line. `holds`: for any part of one."""

    name: str
    begins: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    kind: Kind = "diagnostic"


class Speakers(Struct, frozen=True, kw_only=True):
    """speakers.toml: the first that fits is believed."""

    speaker: tuple[Speaker, ...]


class Event(Struct, frozen=True, kw_only=True):
    """`speaker`: nobody where it is not known. `command`: the part of the line that is a command, from and to."""

    speaker: str
    kind: Kind
    command: tuple[int, int] | None = None


@cache
def _rules() -> tuple[tuple[str, Kind, re.Pattern[str]], ...]:
    rows = codec.own_table(TABLE, Speakers).speaker
    return tuple((row.name, row.kind, re.compile(_either(row))) for row in rows)


def _either(row: Speaker) -> str:
    begins = [rf"\s*(?:E +)?(?:{each})" for each in row.begins]
    return "|".join((*begins, *(rf".{{0,600}}?(?:{each})" for each in row.holds)))


def names() -> frozenset[str]:
    """All speakers that are known."""
    return frozenset(name for name, _, _ in _rules())


@lru_cache(maxsize=4096)
def event(line: str) -> Event:
    """Reads what one line tells of, without the prefixes of builders."""
    if _LISTING.match(line):
        return Event(speaker="", kind="listing", command=(0, len(line)))
    found = command_in(line)  # of the whole: commands are the longest lines there are
    if found and not found[0]:
        return Event(speaker="", kind="command", command=found)
    for name, kind, pattern in _rules():
        if pattern.match(line, 0, _LONGEST):
            return Event(speaker=name, kind=kind, command=found)
    return Event(speaker="", kind="chatter", command=found)


def is_compiler_call(line: str) -> bool:
    return _CALL.match(line) is not None


def command_in(line: str) -> tuple[int, int] | None:
    """Where a line is a command, or has one; the end of what a builder ran is the end of its line."""
    if _CALL.match(line) or _TYPED.match(line):
        return 0, len(line)
    match = _QUOTED.search(line) if '" "' in line or "', '" in line or "ommand" in line else None
    return match.span(match.lastgroup or 0) if match else None


@cache
def _beginnings() -> re.Pattern[str]:
    rows = codec.own_table(TABLE, Speakers).speaker
    return re.compile(rf"\s*(?:{'|'.join(each for row in rows for each in row.begins if row.kind == 'diagnostic')})")


def begins_message(line: str) -> bool:
    """Whether a line is the first of what some program says, and so does not go on where the line before it ends."""
    return _beginnings().match(line, 0, _LONGEST) is not None


def spoken(line: str) -> str:
    """The line as long as it was, with blanks for what is a command or a list of files."""
    if (found := event(line).command) is None:
        return line
    return line[: found[0]] + " " * (found[1] - found[0]) + line[found[1] :]
